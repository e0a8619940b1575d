#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the training speed here and in transformers, of GPT-2 or Llama.

Both sides alternate (A B B A ...), each in its own process on the given cores.
The script prints the median of the ratios of all rounds, with their range,
because absolute numbers mean little on a busy machine.

Needs torch and transformers (pip install torch transformers, in a virtual
environment outside of this tree), and the program:

  bazel build -c opt //:train
  bench_against_transformers.py --train bazel-bin/programs/train
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def torch_side(args):
    """Prints the median tokens/s of transformers' model (fused AdamW)."""
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    if args.model == "gpt":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=256, n_positions=args.seq, n_embd=args.hidden,
            n_layer=args.layers, n_head=args.heads, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0, bos_token_id=None, eos_token_id=None,
            use_cache=False))
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=256, max_position_embeddings=args.seq,
            hidden_size=args.hidden, num_hidden_layers=args.layers,
            num_attention_heads=args.heads, num_key_value_heads=args.heads,
            intermediate_size=args.ffn, use_cache=False))
    model = model.train().to(
        torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    if args.compile:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, 256, (args.batch, args.seq + 1))
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, 256), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        times.append(time.perf_counter() - start)
    print(args.batch * args.seq / statistics.median(times[2:]))


def model_flags(args):
    names = ["model", "dtype", "layers", "hidden", "heads", "seq", "batch",
             "steps"] + ["ffn"] * (args.model == "llama")
    return [part for name in names
            for part in ("--" + name, str(getattr(args, name)))]


def run_torch(args):
    command = [sys.executable, os.path.abspath(__file__), "--side", "torch"]
    command += model_flags(args)
    if args.compile:
        command += ["--compile"]
    cores = args.cores.split(",")
    env = dict(os.environ, OMP_NUM_THREADS=str(len(cores)),
               OPENBLAS_CORETYPE="SkylakeX")
    command += ["--threads", str(len(cores))]
    out = subprocess.run(["taskset", "-c", args.cores] + command, env=env,
                         check=True, capture_output=True, text=True).stdout
    return float(out.split()[-1])


def run_ours(args, mesh, cores):
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        command = ["taskset", "-c", cores, args.train, "--mesh", mesh,
                   "--json", result.name, "--sample", "0"]
        command += model_flags(args)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        return json.load(open(result.name))["tokens_per_second"]


def ratios(label, one, other, rounds):
    values, first, second = [], [], []
    for i in range(rounds):
        if i % 2 == 0:
            a, b = one(), other()
        else:
            b = other()
            a = one()
        values.append(a / b)
        first.append(a)
        second.append(b)
    print(f"{label}: {statistics.median(values):.2f} "
          f"({min(values):.2f} to {max(values):.2f}), "
          f"{statistics.median(first):.0f} to "
          f"{statistics.median(second):.0f} tokens/s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--train", help="the program //:train")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--model", choices=["gpt", "llama"], default="gpt")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--compile", action="store_true",
                        help="torch.compile the model of transformers")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--ffn", type=int, help="width of Llama's MLP")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cores", default="0",
                        help="cores of the comparison with torch, as for taskset")
    parser.add_argument("--no-meshes", action="store_true",
                        help="run only the comparison with torch")
    parser.add_argument("--threads", type=int, default=1,
                        help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=["torch"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    # As //:train has it: 8/3 of the width, up to a multiple of 64.
    args.ffn = args.ffn or -(-args.hidden * 8 // 3 // 64) * 64
    if args.side == "torch":
        torch_side(args)
        return
    if not args.train:
        parser.error("--train PROGRAM is missing: bazel build //:train")
    ratios("one rank / transformers, on core(s) " + args.cores,
           lambda: run_ours(args, "dp=1", args.cores),
           lambda: run_torch(args), args.rounds)
    if args.no_meshes:
        return
    for mesh in ("dp=2", "tp=2"):
        ratios(f"{mesh} on two cores / one rank on one",
               lambda: run_ours(args, mesh, "0,1"),
               lambda: run_ours(args, "dp=1", "0"), args.rounds)


if __name__ == "__main__":
    main()
