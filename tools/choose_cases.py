#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses the operator cases that are checked in, from a folder of many.

    bazel build -c opt //:conformance
    tools/choose_cases.py DIR --out tests/conformance/data

DIR holds cases.jsonl and tensors.safetensors as tests/conformance/data/README.md
describes them. Only cases that the runner can call count. Cases that agree in
operator, variant, tensor types and arguments form a group, and one case of each
group is chosen. So is one case for each combination of tensor ranks among the
cases of at most 2,000 bytes. Two arguments agree if both are tensors, both are
numbers, or both are the same text, boolean or null. Within a group the script
prefers a case with gradients, then one with a dimension to split (a size above 1,
and no size 0), then one of at most 2,000 bytes, then the one with the fewest
sizes that are even or less than 2, then the smallest, then the first id.

The choice depends only on DIR and on the cases that the runner can call, so
choosing again from the chosen cases gives the same two files. A tensor that
several cases have as the same input, output, cotangent or gradient is written
once, under its first name. The script prints the chosen cases of each operator,
and at the end "N of M cases, of K operators, B bytes". The exit status is 1 if a
case fails, if the folder holds something that the script does not know, or if
the choice is larger than 2.5 MB; 2 if the command line is wrong.
"""

import argparse
import collections
import json
import os
import struct
import subprocess
import sys
import tempfile

SMALL = 2000  # bytes of tensors
MOST = 3_500_000  # bytes of both files
FIELDS = {"id", "op", "variant", "tier", "dtype", "args", "kwargs", "throws",
          "outputs", "cotangents", "gradients", "rtol", "atol"}
SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BOOL": 1, "U8": 1}
RUNNER = "bazel-bin/tests/conformance/conformance"


def refuse(why):
    sys.exit(f"choose_cases.py: {why}")


class Folder:
    """A folder of cases and the tensors that they name."""

    def __init__(self, path):
        try:
            with open(os.path.join(path, "cases.jsonl"), encoding="utf-8") as f:
                self.cases = [json.loads(line) for line in f if line.strip()]
            with open(os.path.join(path, "tensors.safetensors"), "rb") as f:
                content = f.read()
            length, = struct.unpack_from("<Q", content)
            self.tensors = json.loads(content[8:8 + length])
            self.data = content[8 + length:]
        except (OSError, ValueError, struct.error) as e:
            refuse(f"cannot read the cases of {path}: {e}")
        self.tensors.pop("__metadata__", None)
        for name, info in self.tensors.items():
            count = 1
            for size in info["shape"]:
                count *= size
            begin, end = info["data_offsets"]
            if info["dtype"] not in SIZES:
                refuse(f"tensor {name} is of the unknown type {info['dtype']}")
            if (not 0 <= begin <= end <= len(self.data)
                    or end - begin != count * SIZES[info["dtype"]]):
                refuse(f"tensor {name}, {info['dtype']} {info['shape']}, has the "
                       f"bytes [{begin}, {end}) of {len(self.data)}")
        ids = collections.Counter(case.get("id") for case in self.cases)
        for case in self.cases:
            unknown = set(case) - FIELDS
            if unknown:
                refuse(f"case {case.get('id')} has the unknown field "
                       f"{sorted(unknown)[0]}")
            missing = {"id", "op", "args", "kwargs", "tier"} - set(case)
            if missing:
                refuse(f"case {case.get('id')} has no {sorted(missing)[0]}")
            if ids[case["id"]] > 1:
                refuse(f"{ids[case['id']]} cases have the id {case['id']}")
            for name in self.names(case):
                if name not in self.tensors:
                    refuse(f"case {case['id']} names the tensor {name}, which "
                           "is not there")
            self.form(case, lambda info: info["dtype"])

    @staticmethod
    def inputs(case):
        def tensors(value):
            if isinstance(value, dict):
                return [value["tensor"]] if "tensor" in value else []
            if isinstance(value, list):
                return [name for v in value for name in tensors(v)]
            return []
        return tensors(case["args"]) + tensors(list(case["kwargs"].values()))

    def names(self, case):
        """The tensors of a case."""
        names = self.inputs(case) + case.get("outputs", [])
        for field in ("cotangents", "gradients"):
            names += case.get(field, {}).values()
        return names

    def bytes(self, case):
        total = 0
        for name in set(self.names(case)):
            begin, end = self.tensors[name]["data_offsets"]
            total += end - begin
        return total

    def form(self, case, of_tensor):
        """The arguments of a case by their kinds, as text."""
        def kind(value):
            if isinstance(value, dict):
                if "tensor" in value:
                    return "tensor " + of_tensor(self.tensors[value["tensor"]])
                if len(value) != 1 or not value.keys() <= {
                        "float", "dtype", "slice", "index", "ellipsis"}:
                    refuse(f"case {case['id']} has an argument of an unknown "
                           f"kind: {json.dumps(value)}")
                if "dtype" in value:
                    return "type " + value["dtype"]
                return "number" if "float" in value else next(iter(value))
            if isinstance(value, list):
                return [kind(v) for v in value]
            if isinstance(value, (bool, str)) or value is None:
                return json.dumps(value)
            return "number"
        return json.dumps([case["op"], case.get("variant"), "throws" in case,
                           [kind(v) for v in case["args"]],
                           {k: kind(v) for k, v in case["kwargs"].items()}],
                          sort_keys=True)

    def preference(self, case):
        """The key of a case: the smallest one of a group is chosen."""
        sizes = [size for name in self.inputs(case)
                 for size in self.tensors[name]["shape"]]
        total = self.bytes(case)
        return ("gradients" not in case, max(sizes, default=1) < 2 or 0 in sizes,
                max(total - SMALL, 0) // SMALL,
                sum(size < 2 or size % 2 == 0 for size in sizes), total,
                case["id"])

    def choose(self, runnable):
        groups = collections.defaultdict(list)
        for case in runnable:
            groups[self.form(case, lambda t: t["dtype"])].append(case)
            if self.bytes(case) <= SMALL:
                groups[self.form(case, lambda t: str(len(t["shape"])))].append(
                    case)
        best = {min(group, key=self.preference)["id"]
                for group in groups.values()}
        return [case for case in self.cases if case["id"] in best]

    def one_name_each(self, chosen):
        """The name under which each tensor of the cases is written."""
        first, names = {}, {}
        for name in sorted({n for case in chosen for n in self.names(case)}):
            info = self.tensors[name]
            begin, end = info["data_offsets"]
            # Within a case, tensors keep different names: x.in0 and y.in1 stay
            # two.
            part = name.rpartition(".")[2]
            key = part, info["dtype"], *info["shape"], self.data[begin:end]
            names[name] = first.setdefault(key, name)
        return names

    def write(self, chosen, to):
        names = self.one_name_each(chosen)

        def renamed(value):
            if isinstance(value, dict):
                return {names.get(k, k): renamed(v) for k, v in value.items()}
            if isinstance(value, list):
                return [renamed(v) for v in value]
            return names.get(value, value) if isinstance(value, str) else value

        text = "".join(json.dumps(renamed(case)) + "\n"
                       for case in chosen).encode()
        header, data = {}, bytearray()
        # Large elements come first, so that all are aligned.
        for name in sorted(
                set(names.values()),
                key=lambda n: (-SIZES[self.tensors[n]["dtype"]], n)):
            info = self.tensors[name]
            begin, end = info["data_offsets"]
            header[name] = {"dtype": info["dtype"], "shape": info["shape"],
                            "data_offsets": [len(data), len(data) + end - begin]}
            data += self.data[begin:end]
        head = json.dumps(header, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)
        tensors = struct.pack("<Q", len(head)) + head + data
        if len(text) + len(tensors) > MOST:
            refuse(f"{len(chosen)} cases take {len(text) + len(tensors)} bytes; "
                   f"at most {MOST} may be checked in")
        for name, content in (("cases.jsonl", text),
                              ("tensors.safetensors", tensors)):
            with open(os.path.join(to, name), "wb") as f:
                f.write(content)
        return len(text) + len(tensors)


def runnable(folder, path, runner):
    """The cases for which the library has a function."""
    with tempfile.TemporaryDirectory() as scratch:
        report = os.path.join(scratch, "report.json")
        try:
            done = subprocess.run(
                [runner, os.path.abspath(path), "--mesh", "1", "--json", report],
                capture_output=True, text=True)
        except OSError as e:
            refuse(f"cannot run {runner}: {e}; run bazel build -c opt "
                   "//:conformance")
        if done.returncode:
            failed = [line for line in done.stdout.splitlines()
                      if line.startswith("FAILED")] or [done.stderr.strip()]
            refuse(f"a case that fails cannot be checked in: {failed[0]}")
        with open(report, encoding="utf-8") as f:
            skipped = json.load(f)["skipped_cases"]
    return [case for case in folder.cases if case["id"] not in skipped]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", help="the folder with all cases")
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="the folder for the chosen cases; replaces the two "
                        "files there")
    parser.add_argument("--runner", default=RUNNER, metavar="FILE",
                        help="the conformance runner (default: %(default)s)")
    options = parser.parse_args()
    if not os.path.isdir(options.out):
        parser.error(f"--out {options.out}: there is no such folder")

    folder = Folder(options.folder)
    chosen = folder.choose(runnable(folder, options.folder, options.runner))
    size = folder.write(chosen, options.out)
    by_op = collections.defaultdict(list)
    for case in chosen:
        by_op[case["op"]].append(case["id"].removeprefix(case["op"] + "/"))
    for op in sorted(by_op):
        print(f"{op}: {' '.join(by_op[op])}")
    print(f"{len(chosen)} of {len(folder.cases)} cases, of {len(by_op)} "
          f"operators, {size} bytes")


if __name__ == "__main__":
    main()
