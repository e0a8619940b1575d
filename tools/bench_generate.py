#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares //:generate with transformers: tokens a second, and the time of a prompt.

  bench_generate.py GENERATE [--types f32 bf16 int8] [--rounds 3] [--alone] [--cpu]

GENERATE is the built program (bazel-bin/programs/generate). The model is a Llama
of 125 M parameters with random weights, made in a temporary folder. All sides
alternate, on one core and on two (threads of torch; tp=1 and tp=2); int8 is bf16
with --weights int8, which transformers does not have. The time of a token is the
difference between runs of 60 and of 10 tokens, that of a prompt of 512 tokens the
difference to one of 16, so that loading does not count. Prints the medians, and
the rate at which each token's weights were read beside that of torch's sum of a
long array. Needs torch and transformers, and a quiet machine; --cpu measures the
CPU time of one core instead, which other programs disturb less.
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
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": None}
BYTES = {"f32": 4, "bf16": 2, "int8": 1}


def cpu_time():
    return sum(os.times()[:4])  # with that of finished children


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("generate")
    parser.add_argument("--types", nargs="+", default=list(TYPES),
                        choices=list(TYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", action="store_true",
                        help="without transformers")
    parser.add_argument("--cpu", action="store_true",
                        help="CPU time, on one core")
    args = parser.parse_args()
    clock = cpu_time if args.cpu else time.perf_counter
    all_cores = (1,) if args.cpu else (1, 2)

    def timed(run):
        begin = clock()
        run()
        return clock() - begin

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=4, intermediate_size=2048, vocab_size=32000,
        max_position_embeddings=1024, bos_token_id=None, eos_token_id=None)).eval()
    weights = sum(p.numel() for p in model.parameters()) - 32000 * 768
    long = torch.ones(1 << 27)
    prompts = {n: torch.randint(0, 32000, (1, n)) for n in (16, 512)}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for n, ids in prompts.items():
            save_file({"input_ids": ids}, os.path.join(folder, f"ids{n}"))

        def ours(kind, n, tokens, cores):
            flags = (["--dtype", "bf16", "--weights", "int8"]
                     if kind == "int8" else ["--dtype", kind])
            return timed(lambda: subprocess.run(
                [args.generate, "--model", folder, "--ids",
                 os.path.join(folder, f"ids{n}"), "--tokens", str(tokens),
                 "--temperature", "0", "--ignore-eos", "--chunk", "512",
                 "--mesh", f"tp={cores}", *flags],
                check=True, stdout=subprocess.DEVNULL))

        def theirs(kind, n, tokens, cores):
            torch.set_num_threads(cores)
            model.to(TYPES[kind])
            with torch.no_grad():
                return timed(lambda: model.generate(
                    prompts[n], max_new_tokens=tokens, min_new_tokens=tokens,
                    do_sample=False, pad_token_id=0))

        sides = {(name, kind, cores): (side, [], [])
                 for kind in args.types
                 for cores in all_cores
                 for name, side in (("dtensor", ours), ("transformers", theirs))
                 if side is ours or (TYPES[kind] and not args.alone)}
        sums = {cores: [] for cores in all_cores}
        for _ in range(args.rounds):
            for cores, times in sums.items():
                torch.set_num_threads(cores)
                times.append(timed(long.sum))
            for (_, kind, cores), (side, token, prompt) in sides.items():
                token.append((side(kind, 16, MANY, cores) -
                              side(kind, 16, FEW, cores)) / (MANY - FEW))
                prompt.append(side(kind, 512, 1, cores) -
                              side(kind, 16, 1, cores))
    for cores, times in sums.items():
        rate = long.numel() * 4 / statistics.median(times) / 1e9
        print(f"{cores} cores: {rate:.1f} GB/s in a plain sum")
    for (name, kind, cores), (_, token, prompt) in sides.items():
        speed = 1 / statistics.median(token)
        print(f"{name:12} {kind:4} {cores} cores: {speed:6.1f} tokens/s, "
              f"{weights * BYTES[kind] * speed / 1e9:5.1f} GB/s, "
              f"{statistics.median(prompt):.3f} s for 512 tokens")


if __name__ == "__main__":
    main()
