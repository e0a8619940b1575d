#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gpu_bench runs to its end, on emulated GPUs, and torch's script has its cases.
#
#   gpu_bench_test.sh GPU_BENCH GPU_BENCH_PY PLUGIN
set -u

bench=$PWD/$1 script=$PWD/$2
export DTENSOR_CUDA_LIBRARY=$PWD/$3
. tests/want.sh

want no-case 2 'there is no G0; write some of G1 to G9' "$bench" --cases G1,G0

# Each rank's clock says something else: what it sends has to meet nevertheless.
want ranks 0 '^G6/mlp .* of one rank' "$bench" --mesh tp=4 --cases G6 --divide 128 \
  --rounds 40 --timeout 20
for case in mlp all-gather reduce-scatter all-reduce; do
  want "sharing, $case" 0 "^G6/$case .*; goal >= 0\.[0-9]*: (met|missed)$" "$bench" \
    --device cuda --mesh tp=2 --ranks-per-gpu 2 --cases "G6/$case" --divide 256 --rounds 1
done

want list 0 '^G6/mlp$' "$bench" --list
"$bench" --list >names
want all 0 '^G8/adamw +[0-9.]+ us, [0-9.]+ of a copy .* GB/s of .*; goal >= 0.88: ' \
  "$bench" --device cuda --divide 512 --rounds 1 --json all.json
# One rank moves nothing, which its row says.
grep -vE '^G6/(all|reduce)' names | while read -r name; do
  want "all's $name" 0 "\"case\": \"$name\"" cat all.json
  ((!failures)) || exit 1
done || failures=$((failures + 1))
want tokens 0 '^G9/generate-1 .* MB, [0-9]+ tokens/s; goal' \
  "$bench" --device cuda --divide 512 --rounds 1 --cases G9/generate-1
# A case alone, and for a profiler: a row for it, and none.
rows() { "$bench" --device cuda --divide 512 --cases G3/swiglu "$@" | wc -l; }
want one 0 '^1$' rows --rounds 1
want profile 0 '^0$' rows --rounds 0
want no-graphs 0 '^G2/step +not measured: the device has no CUDA graphs$' \
  "$bench" --divide 512 --rounds 1 --cases G2

# The script's cases, of a torch that computes nothing: --against finds them by
# their names.
cat >names.py <<'PY'
import importlib.util, json, sys


class Anything:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        return self

    def __getitem__(self, key):
        return self

    def __iter__(self):
        return iter([self] * 3)


for name in "add sub mul truediv matmul pow neg radd rsub rmul rpow".split():
    setattr(Anything, f"__{name}__", lambda self, *args: self)
torch = sys.modules["torch"] = Anything()
spec = importlib.util.spec_from_file_location("gpu_bench", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
names = []
module.Bench.case = lambda self, name, *args, **kwargs: names.append(name)
sys.argv = ["gpu_bench.py", "--divide", "512"]
module.main()
if names != list(module.CASES):
    sys.exit(f"its names {names} are not its list's {list(module.CASES)}")
# A GPU's ranks are not torch's, nor is generation.
ours = [
    name for name in open("names").read().split() if name[:2] not in ("G6", "G9")
]
if names != ours:
    print("torch's", names, "\nours", ours, sep="\n")
    sys.exit(1)
print(len(names), "cases")
PY
want script-without-it 1 'there is no G6; write some of G1/feed-forward, ' \
  python3 "$script" --cases G1,G6
want script 0 '^[0-9]+ cases$' python3 names.py "$script"

# Its row: the ratios, a side that torch refuses, and the goal.
cat >times.py <<'PY'
import argparse, importlib.util, json, sys


class Torch:
    compile = staticmethod(lambda fn: fn)


def refuses():
    raise RuntimeError("no kernel\nof any kind")


sys.modules["torch"] = Torch
spec = importlib.util.spec_from_file_location("gpu_bench", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
ours = [
    {"case": c, "seconds": 2e-6, "best_seconds": 1.9e-6, "peak_bytes": 0}
    for c in ("G4/a", "G1/b")
]
with open("ours.json", "w") as f:
    json.dump(ours, f)
b = module.Bench(
    argparse.Namespace(
        against="ours.json", json="torch.json", rounds=3, device="cpu"
    )
)
b.once = lambda fn: fn()
b.case("G4/a", lambda: 3e-6, cudnn=lambda: 1.97e-6, other=refuses)
b.case("G1/b", lambda: 3e-6, compiled=False)
PY
want row 0 '^G4/a +eager 3.0 us \(1.500 of ours\), compiled 3.0 us .*, cudnn 2.0 us \(0.985 of ours\), other: no kernel; goal >= 0.98 of cudnn: met$' \
  python3 times.py "$script"
want best 0 '^G1/b .*; goal >= 0.98 of the fastest: missed$' python3 times.py "$script"
want written 0 '"case": "G1/b"' cat torch.json

exit $((failures > 0))
