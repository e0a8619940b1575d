#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tokens/s here and in Hugging Face's `tokenizers`, on one core.

  bazel build -c opt //tests/bench:tokenizer_bench
  tools/bench_tokenizers.py bazel-bin/tests/bench/tokenizer_bench TEXT

Trains a tokenizer of each kind on TEXT, a file of a few MB, and lets both sides
encode and decode it in pieces of 1,000 bytes, in turns. Prints the medians of
five turns, in millions of tokens per second of CPU time, and the range of the
ratios.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
TURNS = 5


def rates(tokenizer, pieces):
    """(tokens, tokens/s of encoding, tokens/s of decoding)."""
    begin = time.process_time()
    ids = [tokenizer.encode(x).ids for x in pieces]
    middle = time.process_time()
    for x in ids:
        tokenizer.decode(x)
    tokens = sum(map(len, ids))
    return (tokens, tokens / (middle - begin),
            tokens / (time.process_time() - middle))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    import tokenizer_goldens
    from tokenizers import Tokenizer
    data = pathlib.Path(sys.argv[2]).read_bytes()
    pieces = [data[i:i + 1000].decode("utf-8", "replace")
              for i in range(0, len(data), 1000)]
    for make in (tokenizer_goldens.byte_level,
                 tokenizer_goldens.sentencepiece_bpe, tokenizer_goldens.unigram,
                 tokenizer_goldens.word_piece):
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "tokenizer.json")
            make(pieces, size=16_000).save(file)
            tokenizer, theirs, ours = Tokenizer.from_file(file), [], []
            for _ in range(TURNS):
                theirs.append(rates(tokenizer, pieces))
                ours.append([float(x) for x in subprocess.check_output(
                    [sys.argv[1], folder, sys.argv[2]]).split()])
        if ours[0][0] != theirs[0][0]:
            sys.exit(f"{make.__name__}: {ours[0][0]:.0f} tokens here, "
                     f"{theirs[0][0]} there")
        for i, what in (1, "encode"), (2, "decode"):
            ratios = [a[i] / b[i] for a, b in zip(ours, theirs)]
            print(f"{make.__name__:18}{what} {theirs[0][0]:9,} tokens, M/s: here "
                  f"{statistics.median(x[i] for x in ours) / 1e6:.2f}, tokenizers "
                  f"{statistics.median(x[i] for x in theirs) / 1e6:.2f}, ratio "
                  f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to "
                  f"{max(ratios):.1f})", flush=True)


if __name__ == "__main__":
    main()
