#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates a saved model with Hugging Face transformers and compares.

Opens DIR (config.json and model.safetensors, as `train --save DIR` writes them)
with AutoModelForCausalLM and computes the mean next-byte cross-entropy over
TEXT, cut into consecutive windows of SEQ bytes. Each window predicts its own
bytes 2 to SEQ; a shorter window at the end is dropped. With --expect or --json
the result must agree with the program's eval_loss.

Example, in a virtual environment with torch and transformers:
  bazel run //:train -- --mesh dp=2,tp=3 --save /tmp/m --eval LICENSE \\
      --json /tmp/m.json
  tools/compare_with_transformers.py /tmp/m LICENSE --json /tmp/m.json

Exit status: 0 equal (or nothing to compare with), 1 not equal, 2 bad input.
"""
import argparse
import json
import math
import pathlib
import sys


def fail(text):
    print(f"compare_with_transformers: {text}", file=sys.stderr)
    sys.exit(2)


def arguments():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir", type=pathlib.Path, help="the saved model")
    p.add_argument("text", type=pathlib.Path, help="the file to evaluate on")
    p.add_argument("--seq", type=int, default=0,
                   help="window size (default: the model's sequence length)")
    p.add_argument("--expect", type=float, help="the loss to compare with")
    p.add_argument("--json", type=pathlib.Path,
                   help="compare with eval_loss in this file from train --json")
    p.add_argument("--tolerance", type=float, default=1e-5,
                   help="largest difference that passes (default: %(default)s)")
    p.add_argument("--batch", type=int, default=16,
                   help="windows at a time (default: %(default)s)")
    p.add_argument("--dtype", choices=["saved", "float32", "float64"],
                   default="saved", help="compute in (default: as saved)")
    return p.parse_args()


def expected_loss(args):
    if args.expect is not None:
        return args.expect
    if args.json is None:
        return None
    try:
        loss = json.loads(args.json.read_text())["eval_loss"]
    except (OSError, ValueError, KeyError, TypeError) as e:
        fail(f"{args.json} has no eval_loss ({e!r}); run train with --json and "
             "--eval")
    if not isinstance(loss, (int, float)):
        fail(f"eval_loss of {args.json} is {loss!r}; run train with --eval")
    return loss


def load(args):
    """The model and its configuration; reports weights that do not match."""
    try:
        import torch
        import transformers
    except ImportError as e:
        fail(f"{e}; run pip install torch transformers (in a virtual "
             "environment)")
    if not (args.dir / "config.json").is_file():
        fail(f"{args.dir}/config.json does not exist; write the folder that "
             "--save made")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        args.dir, output_loading_info=True)
    # Parameters with other names would keep random weights without an error.
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(kind):
            print(f"{kind}: {sorted(map(str, info[kind]))}")
            sys.exit(1)
    saved = json.loads((args.dir / "config.json").read_text())["dtype"]
    dtype = saved if args.dtype == "saved" else args.dtype
    return torch, model.to(getattr(torch, dtype)).eval()


def evaluate(torch, model, data, seq, batch):
    count = len(data) // seq
    windows = torch.frombuffer(bytearray(data[:count * seq]), dtype=torch.uint8)
    windows = windows.view(count, seq).long()
    total = 0.0
    with torch.no_grad():
        for part in windows.split(batch):
            logits = model(input_ids=part).logits[:, :-1].double()
            total += torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), part[:, 1:].reshape(-1),
                reduction="sum").item()
    return total / (count * (seq - 1)), count


def main():
    args = arguments()
    expected = expected_loss(args)
    try:
        data = args.text.read_bytes()
    except OSError as e:
        fail(f"{args.text} cannot be read: {e.strerror}")
    torch, model = load(args)
    seq = args.seq or model.config.max_position_embeddings
    if not 2 <= seq <= model.config.max_position_embeddings:
        fail(f"--seq is {seq}; write 2 to {model.config.max_position_embeddings}"
             ", the model's sequence length")
    if len(data) < seq:
        fail(f"{args.text} has {len(data)} bytes, fewer than a window of {seq}")
    loss, count = evaluate(torch, model, data, seq, max(1, args.batch))
    name = type(model).__name__
    print(f"{name}: {loss:.9f} nats per byte over {count} windows of {seq}")
    if expected is None:
        return 0
    difference = abs(loss - expected)
    equal = math.isfinite(difference) and difference <= args.tolerance
    print(f"expected {expected:.9f}, difference {difference:.2e}: "
          f"{'equal' if equal else 'NOT equal'} within {args.tolerance:g}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
