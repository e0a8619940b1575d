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

import difflib
import os
import re
import subprocess
import sys

SOURCES = ("boxes", "cross_entropy", "epilogue", "norm", "optim", "rotary", "rows")
KERNEL = re.compile(
    r"Compiling entry function '(\w+)'.*\n"
    r".*Function properties.*\n"
    r" *(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*Used (\d+) registers"
)


def launcher(kernel):
    """The function of the source whose kernel it is, without its types."""
    found = re.search(r"\(anonymous namespace\)::(\w+)", kernel)
    return found.group(1) if found else re.split("[<(]", kernel)[0].split("::")[-1]


def table(logs):
    found = []
    for path in logs:
        source = os.path.basename(path).removesuffix(".cc.ptxas")
        if source in SOURCES:
            with open(path) as f:
                found += [(source, *k) for k in KERNEL.findall(f.read())]
    names = subprocess.run(
        ["c++filt"],
        input="\n".join(kernel[1] for kernel in found),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
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
    status = os.environ["NVCC"]
    if not re.match(r"nvcc 13\.0\.\d+ for sm_90(;|$)", status):
        print(f"not compared: this is {status}")
        return 0
    golden, *logs = sys.argv[1:]
    got = table(logs)
    if os.environ.get("UPDATE_GOLDEN"):
        tree = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
        with open(os.path.join(tree, golden), "w") as f:
            f.writelines(got)
        return 0
    with open(golden) as f:
        want = f.readlines()
    if got == want and got:
        print(f"{len(got)} functions")
        return 0
    sys.stdout.writelines(difflib.unified_diff(want, got, golden, "ptxas", n=0))
    print(f"{len(got)} functions; if this is meant: {__doc__.splitlines()[-1].strip()}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
