#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a small golden of a model out of a large one.

  golden_sketch.py FROM TO

FROM and TO are folders with config.json, model.safetensors (both are copied) and
expected.safetensors. In expected.safetensors, each tensor v of more than 64
numbers becomes "NAME.sketch": eight sums of v[i] * s(i, k) and the 2-norm of v,
where s(i, k) is +1 or -1 by the top bit of splitmix64(8 i + k). If the
difference of two tensors has norm d, their sketches differ by about d.
transformers computes the gradients of a mixture's experts in two tensors; they
get the names and shapes of the experts' matrices in model.safetensors.
"""

import json
import math
import os
import shutil
import struct
import sys

MASK = (1 << 64) - 1


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sketch(values):
    sums = [
        math.fsum(-v if splitmix64(8 * i + k) >> 63 else v
                  for i, v in enumerate(values)) for k in range(8)
    ]
    return sums + [math.sqrt(math.fsum(v * v for v in values))]


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        lo, hi = t["data_offsets"]
        raw = data[8 + n + lo:8 + n + hi]
        letter = {"F64": "d", "I64": "q"}[t["dtype"]]
        yield name, t, list(struct.unpack(f"<{len(raw) // 8}{letter}", raw))


# The names of an expert's matrices (gate, up, down) in files, where transformers
# has one tensor for all experts and for gate and up together.
EXPERTS = {
    "mixtral": ("block_sparse_moe", ("w1", "w3", "w2")),
    "qwen3_moe": ("mlp", ("gate_proj", "up_proj", "down_proj")),
}


def experts_apart(tensors, model_type):
    moe, (gate, up, down) = EXPERTS.get(model_type, ("", ("", "", "")))
    head = "grad.embed_out." if model_type == "gpt_neox" else "grad.lm_head."
    for name, t, values in tensors:
        layer, found, part = name.partition(".mlp.")
        if not moe or not found:
            # GPTNeoX has another name for its head in files.
            yield name.replace("grad.lm_head.", head), t, values
            continue
        layer += f".{moe}."
        if not part.startswith("experts."):
            yield layer + part, t, values
            continue
        experts, rows, cols = t["shape"]
        if part == "experts.down_proj":
            matrices = {down: rows}
        else:
            matrices = {gate: rows // 2, up: rows // 2}
        at = 0
        for e in range(experts):
            for which, n in matrices.items():
                yield (f"{layer}experts.{e}.{which}.weight", {
                    "dtype": t["dtype"],
                    "shape": [n, cols]
                }, values[at:at + n * cols])
                at += n * cols


def main():
    source, target = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(f"{source}/{name}", f"{target}/{name}")
    with open(f"{source}/config.json", encoding="utf-8") as f:
        model_type = json.load(f)["model_type"]
    header, blob = {}, b""
    for name, t, values in sorted(
            experts_apart(read(f"{source}/expected.safetensors"),
                          model_type)):
        if t["dtype"] == "F64" and len(values) > 64:
            values = sketch(values)
            name, t = name + ".sketch", {"dtype": "F64", "shape": [9]}
        letter = "d" if t["dtype"] == "F64" else "q"
        raw = struct.pack(f"<{len(values)}{letter}", *values)
        header[name] = {
            "dtype": t["dtype"],
            "shape": t["shape"],
            "data_offsets": [len(blob), len(blob) + len(raw)]
        }
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{target}/expected.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


if __name__ == "__main__":
    main()
