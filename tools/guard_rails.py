#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the figures that keep this tree small, each with its limit.

  tools/guard_rails.py [--list]    --list also shows the files or lines that count

Raise a limit only in a commit that says why; when a figure falls, lower its
limit. Exits with 1 if a figure is above its limit.
"""

import collections
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import headers_reached  # noqa: E402

# The most lines of each folder, without those of folders below it that have a
# budget of their own.
BUDGETS = {
    "placement": (10_655, "layouts, rules, choices, plans, prices: the project is for these"),
    "dtensor": (9_805, "dtensor.h; tensors, moves, gradients, and the ranks"),
    "dtensor/comm": (8_822, "a backend is a folder; what they share is written once"),
    "dtensor/device": (2_116, "memory and copies of a device; the CPU's"),
    "dtensor/io": (3_268, "checkpoints and safetensors; formats of others, not ours"),
    "ops": (26_688, "a composition takes 10 lines, a structured operator 120"),
    "ops/cuda_plugin": (1_777, "a GPU as a device, and NCCL"),
    "ops/functions": (2_249, "a function of each element takes 8 lines"),
    "ops/kernels": (17_705, "one text for all devices; another only where it is faster"),
    "nn": (12_339, "a family of models is a row, a layer 40 lines"),
    "nn/text": (3_571, "no C++ library reads these tokenizers; it may not grow"),
    "program": (3_687, "flags, and what a program prints or records"),
    "program/page": (2_254, "one page that shows a record; it may not grow"),
    "program/explore": (1_429, "one server on this machine; it may not grow"),
    "examples": (2_214, "a program shows one subject, or ports one tutorial"),
    "programs": (5_341, "train, explain, plan, generate and the others"),
    "programs/report": (2_471, "tables and pictures; it may not grow"),
    "programs/serving": (2_260, "one HTTP interface; it may not grow"),
}
LIMITS = {
    "headers over 250 lines": 2,
    "sources over 650 lines": 0,
    "headers that dtensor.h reaches": 113,
    "public headers that include kernels": 0,
    "classes of ops/ that the runtime declares": 0,
    "comparisons with a model's name": 0,
    "files without a license line": 0,
    "commits over 600 lines that do more than move": 0,
}
# The last figure counts commits after this one.
SINCE = "56ded4371ed5a1edb13aa738a3f51ba222799fe6"
MOST = 600
LICENSE = "SPDX-License-Identifier: Apache-2.0"
# Files that begin with the license line, after "#!" if there is one.
LICENSED = re.compile(r"\.(h|cc|cuh|cpp|c|js|css|py|sh|bzl|BUILD)$|(^|/)BUILD$")
# Operators, which the runtime must not know: not even by a forward declaration.
OPERATOR = re.compile(r"^(?:class|struct) (?:Op|Attrs|Decision|Kernels);")
MODEL = re.compile(r'[=!]= "(?:gpt|llama|mixtral)"')


def git(*arguments):
    return subprocess.check_output(
        ["git", "-c", f"safe.directory={headers_reached.ROOT}", *arguments],
        cwd=headers_reached.ROOT, text=True, errors="replace")


def changed(commit):
    """The lines that a commit adds or removes, whichever is more. Moved lines,
    changed paths and copies of other projects' sources do not count."""
    gone, new = collections.Counter(), collections.Counter()
    for line in git("show", "-M", "--format=", "--unified=0", commit, "--", ".",
                    ":(exclude)third_party/*/**").split("\n"):
        if line.startswith(("+++", "---")) or line[:1] not in ("+", "-"):
            continue
        text = re.sub(r"//[\w/]*:?|(\w+/)+[\w.]*", "", line[1:]).strip()
        (new if line[0] == "+" else gone)[text] += 1
    return max(sum((new - gone).values()), sum((gone - new).values()))


def large_commits():
    try:
        commits = git("rev-list", "--no-merges", f"{SINCE}..HEAD").split()
    except subprocess.CalledProcessError:
        return None  # a shallow clone
    found = []
    for commit in commits:
        if (lines := changed(commit)) > MOST:
            found.append(f"{commit[:9]}: {lines} lines")
    return found


def unlicensed(files):
    found = []
    for file in files:
        if LICENSED.search(file) and not file.startswith("third_party/llama_jinja/"):
            with open(headers_reached.ROOT / file, errors="replace") as f:
                if LICENSE not in f.readline() + f.readline():
                    found.append(file)
    return found


def figures():
    """(name, limit, number or None, the files or lines that count) of each."""
    files = git("ls-files").split("\n")
    texts = {}
    folders = collections.Counter()
    for file in files:
        folder = os.path.dirname(file)
        while folder and folder not in BUDGETS:
            folder = os.path.dirname(folder)
        if file == "dtensor.h":
            folder = "dtensor"
        if folder:
            with open(headers_reached.ROOT / file, errors="replace") as f:
                # The license line of each file does not count.
                texts[file] = [line for line in f.read().split("\n")[:-1]
                               if LICENSE not in line]
                folders[folder] += len(texts[file])
    reached = headers_reached.reached("dtensor.h")
    headers = [f for f in texts if f.endswith((".h", ".cuh", ".inc"))]

    def longer(names, most):
        return [f"{f}: {len(texts[f])}" for f in names if len(texts[f]) > most]

    def lines(names, pattern):
        return [f"{f}:{i}: {line.strip()}" for f in names
                for i, line in enumerate(texts[f], 1) if re.search(pattern, line)]

    kernels = re.compile(r'^#include "dtensor/ops/kernels/')
    public = [f for f in reached if f in texts and "/kernels/" not in f]
    for folder, (limit, reason) in BUDGETS.items():
        yield f"lines of {folder} ({reason})", limit, folders[folder], []
    for name, found in (
            ("headers over 250 lines", longer(headers, 250)),
            ("sources over 650 lines",
             longer([f for f in texts if f.endswith(".cc")], 650)),
            ("headers that dtensor.h reaches", reached),
            ("public headers that include kernels", lines(public, kernels)),
            ("classes of ops/ that the runtime declares",
             lines([f for f in texts if f.startswith("dtensor/")], OPERATOR)),
            ("comparisons with a model's name", lines(texts, MODEL)),
            ("files without a license line", unlicensed(files)),
            ("commits over 600 lines that do more than move", large_commits())):
        yield name, LIMITS[name], None if found is None else len(found), found


def main():
    if sys.argv[1:] not in ([], ["--list"]):
        print(__doc__, end="")
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    status = 0
    for name, limit, number, found in figures():
        if number is None:
            print(f"{name}: unknown, since this clone lacks the history")
            continue
        above = number > limit
        print(f"{name}: {number} of {limit}" + above * ", ABOVE THE LIMIT")
        if found and (above or sys.argv[1:]):
            print(*("  " + x for x in found), sep="\n")
        status = status or int(above)
    return status


if __name__ == "__main__":
    sys.exit(main())
