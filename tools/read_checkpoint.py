#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint without the library that saved it.

    tools/read_checkpoint.py run/step-00000100                its contents
    tools/read_checkpoint.py run/step-00000100 --out all.pt   for torch.load()

dtensor/io/checkpoint_index.h describes the files. Each rank's file is also a
safetensors file of its own, with a tensor per box. Checksums are compared if the
Python module xxhash is installed.
"""

import argparse
import itertools
import json
import math
import os
import sys

try:
    import xxhash
except ImportError:
    xxhash = None

# The size of a type in bytes, and torch's name for it.
TYPES = {"f32": (4, "float32"), "f64": (8, "float64"), "bf16": (2, "bfloat16"),
         "f16": (2, "float16"), "i32": (4, "int32"), "i64": (8, "int64"),
         "i8": (1, "int8"), "bool": (1, "bool")}


def place(box, size, data, shape, item, whole):
    """Copies a box to its place in the whole tensor, a row at a time."""
    row = item * (size[-1] if size else 1)
    for i, at in enumerate(itertools.product(*map(range, size[:-1]))):
        first = 0
        for n, low, index in zip(shape, box, (*at, 0)):
            first = first * n + low + index
        whole[first * item:first * item + row] = data[i * row:(i + 1) * row]


def read(folder):
    """The step, the values, and {name: (dtype, shape, bytes)}."""
    with open(os.path.join(folder, "index.json")) as f:
        objects = json.load(f)
    values, tensors, files = {}, {}, {}
    for o in objects:
        if "step" in o:
            step = o["step"]
        elif "value" in o:
            values[o["value"]] = next(o[k] for k in ("i64", "u64", "text") if k in o)
        elif "tensor" in o:
            item = TYPES[o["dtype"]][0]
            whole = bytearray(item * math.prod(o["shape"]))
            tensors[o["tensor"]] = o["dtype"], o["shape"], whole
            name, shape = o["tensor"], o["shape"]
        elif "box" in o:
            file = files[o["rank"]]
            with open(file["path"], "rb") as f:
                f.seek(file["header"] + o["offset"])
                data = f.read(o["bytes"])
            if len(data) < o["bytes"]:
                sys.exit(f"{file['path']} is damaged: it ends within the box at "
                         f"{o['box']} of {name}")
            if xxhash and xxhash.xxh3_64_hexdigest(data) != o["xxh3"]:
                sys.exit(f"{file['path']} is damaged: the box at {o['box']} of "
                         f"{name} has another checksum than index.json says")
            place(o["box"], o["size"], data, shape, item, whole)
        elif "rank" in o:
            path = os.path.join(folder, f"rank-{o['rank']:05}.safetensors")
            files[o["rank"]] = {**o, "path": path}
    return step, values, tensors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="its folder, run/step-00000100")
    parser.add_argument("--out", metavar="FILE", help="save {name: tensor} with torch")
    args = parser.parse_args()
    if not os.path.exists(os.path.join(args.checkpoint, "index.json")):
        parser.error(f"{args.checkpoint} has no index.json; name the folder of one "
                     "checkpoint, as run/step-00000100")
    step, values, tensors = read(args.checkpoint)
    print(f"step {step}; checksums {'compared' if xxhash else 'not compared'}")
    for name, value in values.items():
        print(f"{name} = {value}")
    for name, (dtype, shape, _) in tensors.items():
        print(f"{name} {dtype}{shape}")
    if args.out:
        import torch
        torch.save({name: torch.frombuffer(data, dtype=getattr(torch, TYPES[dtype][1]))
                    .reshape(shape) if data else torch.empty(shape)
                    for name, (dtype, shape, data) in tensors.items()}, args.out)


if __name__ == "__main__":
    main()
