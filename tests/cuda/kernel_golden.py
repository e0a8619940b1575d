# SPDX-License-Identifier: Apache-2.0
"""Compares the code that nvcc made of kernels with a golden file."""

import difflib
import os
import re
import subprocess
import sys


def demangled(names):
    """The names of kernels, as C++ writes them."""
    return subprocess.run(
        ["c++filt"],
        input="\n".join(names),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def launcher(kernel):
    """The function of the source whose kernel it is, without its types."""
    found = re.search(r"\(anonymous namespace\)::(\w+)", kernel)
    return found.group(1) if found else re.split("[<(]", kernel)[0].split("::")[-1]


def not_compared():
    """Why there is nothing to compare with, if so: goldens are of one nvcc and
    one GPU."""
    status = os.environ["NVCC"]
    if re.match(r"nvcc 13\.0\.\d+ for sm_90(;|$)", status):
        return None
    return f"not compared: this is {status}"


def compare(golden, got, update):
    """Compares the lines `got` with those of the file `golden`, or writes them
    there if UPDATE_GOLDEN is set. `update` is the command that does so. Returns
    the exit status."""
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
    sys.stdout.writelines(difflib.unified_diff(want, got, golden, "nvcc", n=0))
    print(f"{len(got)} functions; if this is meant: {update}")
    return 1
