#!/usr/bin/env python3
"""Compares //:generate with transformers: tokens a second, and the time of a prompt.

  bench_generate.py GENERATE [--dtype float32] [--rounds 3]

GENERATE is the built program (bazel-bin/examples/generate). The model is a Llama
of 125 M parameters with random weights, made in a temporary folder. Both sides
alternate, on one core and on two (threads of torch; tp=1 and tp=2). The time of a
token is the difference between runs of 60 and of 10 tokens, that of a prompt of
512 tokens the difference to one of 16, so that loading does not count. Prints the
medians. Needs torch and transformers, and a quiet machine.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

FEW, MANY = 10, 60


def timed(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("generate")
    parser.add_argument("--dtype", default="float32",
                        choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=4, intermediate_size=2048, vocab_size=32000,
        max_position_embeddings=1024, bos_token_id=None, eos_token_id=None)).to(
            getattr(torch, args.dtype)).eval()
    prompts = {n: torch.randint(0, 32000, (1, n)) for n in (16, 512)}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for n, ids in prompts.items():
            save_file({"input_ids": ids}, os.path.join(folder, f"ids{n}"))

        def ours(n, tokens, cores):
            return timed(lambda: subprocess.run(
                [args.generate, "--model", folder, "--ids",
                 os.path.join(folder, f"ids{n}"), "--tokens", str(tokens),
                 "--temperature", "0", "--ignore-eos", "--chunk", "512",
                 "--mesh", f"tp={cores}"],
                check=True, stdout=subprocess.DEVNULL))

        def theirs(n, tokens, cores):
            torch.set_num_threads(cores)
            with torch.no_grad():
                return timed(lambda: model.generate(
                    prompts[n], max_new_tokens=tokens, min_new_tokens=tokens,
                    do_sample=False, pad_token_id=0))

        sides = {(name, cores): (side, [], [])
                 for cores in (1, 2)
                 for name, side in (("dtensor", ours), ("transformers", theirs))}
        for _ in range(args.rounds):
            for (_, cores), (side, token, prompt) in sides.items():
                token.append((side(16, MANY, cores) - side(16, FEW, cores)) /
                             (MANY - FEW))
                prompt.append(side(512, 1, cores) - side(16, 1, cores))
    for (name, cores), (_, token, prompt) in sides.items():
        print(f"{name:12} {cores} cores: {1 / statistics.median(token):6.1f} "
              f"tokens/s, {statistics.median(prompt):.3f} s for 512 tokens")


if __name__ == "__main__":
    main()
