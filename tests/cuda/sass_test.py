#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the kernels of the benchmark's cases (tests/bench/gpu_bench.cc) access
memory.

    sass_test.py GOLDEN OBJECT...

compares their machine code with GOLDEN: a line for each function that launches
kernels. `128: 3 <= 8` after "loads" says that 3 of its kernels have loads of 128
bits, each at most 8 of them. A number of loads, stores or calls is rounded up to
a power of two, so that a change matters that changes the line. Memory is global,
or not known to be shared. "local" are accesses to a thread's stack. Calls are
those that the compiler makes, mostly for divisions in 64 bits, of some hundred
cycles each.

A kernel that loads a row in pieces of 16 bits where it could load 128, or that
divides for each element, is many times slower, which no test on the host sees.
Only code for sm_90 of nvcc 13.0 is compared. This writes GOLDEN anew:

    UPDATE_GOLDEN=1 DTENSOR_CUDA_ARCHS=90-real bazel run //tests/cuda:sass_test
"""

import os
import re
import subprocess
import sys
from collections import Counter

from kernel_golden import compare, demangled, launcher, not_compared

SOURCES = (
    "binary_bf16",
    "binary_bf16_first",
    "boxes",
    "cross_entropy",
    "embedding",
    "epilogue",
    "int8_linear",
    "norm",
    "optim",
    "paged_attention",
    "rotary",
    "rows",
)
LINE = re.compile(
    r"\t\tFunction : (\w+)"
    r"|\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?(LDG?|STG?|LDL|STL|CALL)\.([.\w]*)"
)
LOCAL, CALLS = ("local", 0), ("calls", 0)


def kind(opcode, modifiers):
    """("loads", bits), ("stores", bits), LOCAL or CALLS."""
    if opcode == "CALL":
        return CALLS
    if opcode in ("LDL", "STL"):
        return LOCAL
    bits = re.search(r"\b[US]?(8|16|64|128)\b", modifiers)
    return "loads" if opcode[0] == "L" else "stores", int(bits[1]) if bits else 32


def kernels(cuobjdump, path):
    """(name, how often each kind occurs) for each kernel of the object."""
    found = []
    with subprocess.Popen(
        [cuobjdump, "-sass", path], stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stdout:
            match = LINE.match(line)
            if not match:
                continue
            name, opcode, modifiers = match.groups()
            if name:
                found.append((name, Counter()))
            else:
                found[-1][1][kind(opcode, modifiers)] += 1
    if run.returncode:
        sys.exit(f"{cuobjdump} -sass {path} ended with {run.returncode}")
    return found


def shown(counts, what):
    """`128: 3 <= 8` for each width."""
    entries = []
    for bits in sorted({bits for c in counts for k, bits in c if k == what}):
        numbers = [c[what, bits] for c in counts if c[what, bits]]
        most = 1 << (max(numbers) - 1).bit_length()
        of_width = f"{bits}: " if bits else ""
        entries.append(f"{of_width}{len(numbers)} <= {most}")
    return f"{what} {', '.join(entries)}" if entries else f"no {what}"


def table(cuobjdump, objects):
    found = []
    for path in objects:
        source = os.path.basename(path).removesuffix(".cc.o")
        if source in SOURCES:
            found += [(source, *k) for k in kernels(cuobjdump, path)]
    rows = {}
    for (source, _, counts), name in zip(found, demangled(k[1] for k in found)):
        if "dtensor::" in name.split("<")[0]:  # not those of CUDA's libraries
            rows.setdefault((source, launcher(name)), []).append(counts)
    return [
        f"{source}.cc {name}: {len(counts)} kernels; "
        + "; ".join(shown(counts, k) for k in ("loads", "stores", "local", "calls"))
        + "\n"
        for (source, name), counts in sorted(rows.items())
    ]


def main():
    reason = not_compared()
    cuobjdump = os.environ["CUOBJDUMP"]
    if not reason and not cuobjdump:
        reason = (
            "not compared: there are no cuobjdump and nvdisasm beside nvcc or on "
            "PATH; ./setup.sh --cuda installs them"
        )
    if reason:
        print(reason)
        return 0
    golden, *objects = sys.argv[1:]
    return compare(golden, table(cuobjdump, objects), __doc__.splitlines()[-1].strip())


if __name__ == "__main__":
    sys.exit(main())
