#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers, stack and spills of the kernels that move the most memory.

    ptxas_test.py GOLDEN LOG...

compares what ptxas says of them with GOLDEN: a line for each function that
launches kernels, with the number of its kernels and the most of each that one of
them takes. A kernel that spills, or takes so many registers that fewer blocks
run, is slower, which no test on the host sees. Only code for sm_90 of nvcc 13.0
is compared. This writes GOLDEN anew:

    UPDATE_GOLDEN=1 DTENSOR_CUDA_ARCHS=90-real bazel run //tests/cuda:ptxas_test
"""

import os
import re
import sys

from kernel_golden import compare, demangled, launcher, not_compared

SOURCES = ("boxes", "cross_entropy", "epilogue", "norm", "optim", "rotary", "rows")
KERNEL = re.compile(
    r"Compiling entry function '(\w+)'.*\n"
    r".*Function properties.*\n"
    r" *(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*Used (\d+) registers"
)


def table(logs):
    found = []
    for path in logs:
        source = os.path.basename(path).removesuffix(".cc.ptxas")
        if source in SOURCES:
            with open(path) as f:
                found += [(source, *k) for k in KERNEL.findall(f.read())]
    names = demangled(kernel[1] for kernel in found)
    most = {}
    for (source, _, *numbers), name in zip(found, names):
        stack, stores, loads, registers = map(int, numbers)
        row = most.setdefault((source, launcher(name)), [0, 0, 0, 0])
        row[0] += 1
        for i, n in enumerate((registers, stack, stores + loads), 1):
            row[i] = max(row[i], n)
    return [
        f"{source}.cc {name}: {n} kernels, {registers} registers, "
        f"{stack} bytes of stack, {spilled} spilled\n"
        for (source, name), (n, registers, stack, spilled) in sorted(most.items())
    ]


def main():
    if reason := not_compared():
        print(reason)
        return 0
    golden, *logs = sys.argv[1:]
    return compare(golden, table(logs), __doc__.splitlines()[-1].strip())


if __name__ == "__main__":
    sys.exit(main())
