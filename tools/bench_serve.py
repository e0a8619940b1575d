#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of //:serve, with the small model of its test.

  tools/bench_serve.py SERVE [--mesh tp=1] [--rounds 5]
  tools/bench_serve.py SERVE [--mesh tp=3] --soak SECONDS

The first prints the times between two tokens of a stream, in milliseconds: for
32 texts at once, and for the same texts one after the other. The second asks
for texts at random and prints the memory of the server every ten seconds.
"""

import argparse
import os
import random
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/programs"))
import serve_test  # noqa: E402

TEXTS, TOKENS = 32, 100


def gaps(server, i):
    """The seconds between the tokens of text i."""
    connection, response = server.open("POST", "/v1/completions", {
        "prompt": "x" * (1 + i % 7), "max_tokens": TOKENS, "stream": True, "ignore_eos": True,
        "logprobs": 0, "temperature": 1, "seed": i})
    at = [time.monotonic() for line in response if line.startswith(b"data: {")]
    response.close()
    connection.close()
    return [b - a for a, b in zip(at, at[1:])]


def quantile(values, q):
    return sorted(values)[int(q * (len(values) - 1))] * 1e3


def bench(server, rounds):
    gaps(server, 0)
    for _ in range(rounds):
        alone = [gap for i in range(TEXTS) for gap in gaps(server, i)]
        together = []
        threads = [threading.Thread(target=lambda i=i: together.extend(gaps(server, i)))
                   for i in range(TEXTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print(", ".join(f"{name}: median {quantile(x, 0.5):.2f} ms, p99 {quantile(x, 0.99):.2f} ms"
                        for name, x in (("one after the other", alone),
                                        (f"{TEXTS} at once", together))), flush=True)


def ask_at_random(server, r, end, counts):
    while time.monotonic() < end:
        members = {"max_tokens": r.randint(1, 40), "temperature": 2 * r.random(), "ignore_eos": True,
                   "seed": r.getrandbits(40)}
        for chance, more in ((0.3, {"top_k": r.randint(1, 50)}), (0.3, {"frequency_penalty": 1}),
                             (0.3, {"logit_bias": {str(r.randint(3, 249)): 5 * r.random()}}),
                             (0.3, {"stop": [chr(r.randint(97, 122)) for _ in range(3)]}),
                             (0.2, {"n": r.randint(1, 4)})):
            if r.random() < chance:
                members |= more
        prompt, kind = "x" * r.randint(1, 20), r.random()
        if kind < 0.6:
            server.ask("/v1/completions", {"prompt": prompt, "logprobs": r.randint(0, 5),
                                           "stream": kind < 0.2, **members})
        elif kind < 0.8:
            server.ask("/v1/chat/completions", {
                **members, "messages": [{"role": "user", "content": prompt}], "max_tokens": 10})
        elif kind < 0.9:  # leaves before its texts end
            connection, response = server.open("POST", "/v1/completions", {
                "prompt": prompt, **members, "stream": True, "n": 4})
            response.read(10)
            response.close()
            connection.close()
        else:
            server.error(body={"prompt": prompt, "max_tokens": -1})
        counts.append(kind)


def soak(server, seconds):
    begun, counts = time.monotonic(), []
    threads = [threading.Thread(target=ask_at_random, args=(server, random.Random(i), begun + seconds,
                                                            counts)) for i in range(6)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        time.sleep(10)
        with open(f"/proc/{server.process.pid}/status") as f:
            memory = next(line.split()[1] for line in f if line.startswith("VmRSS"))
        print(f"{time.monotonic() - begun:.0f} s: {len(counts)} requests, {memory} kB", flush=True)
    print(server.metrics())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("serve")
    parser.add_argument("--mesh", default="tp=1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--soak", type=float)
    args = parser.parse_args()
    serve_test.SERVE = os.path.abspath(args.serve)
    os.chdir(ROOT)
    serve_test.make_model()
    flags = ["--mesh", args.mesh]
    if not args.soak:
        flags += ["--model", serve_test.make_long_model(), "--batch", str(TEXTS),
                  "--cache-tokens", "20000"]
    with serve_test.Serving(*flags) as server:
        soak(server, args.soak) if args.soak else bench(server, args.rounds)


if __name__ == "__main__":
    main()
