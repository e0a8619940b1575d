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
# CUDA's driver, whose launches operators are compared with, is not emulated.
mkdir driver
gcc -x c - -shared -fPIC -o driver/libcuda.so.1 <<'C'
int cuModuleLoadData(void** module, const char* ptx) { return *module = (void*)ptx, 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) { return *function = module, 0; }
int cuLaunchKernel() { return 0; }
C
export LD_LIBRARY_PATH=$PWD/driver
want all 0 '^G8/adamw +[0-9.]+ us, [0-9.]+ of a copy .* GB/s of .*; goal >= 0.88: ' \
  "$bench" --device cuda --divide 512 --rounds 1 --json all.json
# One rank moves nothing, which its row says.
grep -vE '^G6/(all|reduce)' names | while read -r name; do
  want "all's $name" 0 "\"case\": \"$name\"" cat all.json
  ((!failures)) || exit 1
done || failures=$((failures + 1))
want launch 0 '^G2/add +[0-9.]+ us, [0-9.]+ of a bare launch .*; goal >= 0.87: (met|missed)$' \
  "$bench" --device cuda --rounds 1 --cases G2/add
LD_LIBRARY_PATH='' want no-driver 1 "CUDA's driver does not load: libcuda.so.1" \
  "$bench" --device cuda --rounds 1 --cases G2/add
want untuned 0 '^G1/linear-2048-forward .* goal >= 0.95: ' \
  "$bench" --device cuda --divide 512 --rounds 1 --cases G1/linear-2048-forward
want tuned 0 '^G1/linear-2048-forward .* goal >= 0.99: ' \
  "$bench" --device cuda --divide 512 --rounds 1 --cases G1/linear-2048-forward --tune-gemm
want half-of-a-copy 0 '^G9/int8-linear .* goal >= 0.50: ' \
  "$bench" --device cuda --divide 512 --rounds 1 --cases G9/int8-linear
want tokens 0 '^G9/generate-1 .* MB, [0-9]+ tokens/s; goal' \
  "$bench" --device cuda --divide 512 --rounds 1 --cases G9/generate-1
# A case alone, and for a profiler: a row for it, and none.
rows() { "$bench" --device cuda --divide 512 --cases G3/swiglu "$@" | wc -l; }
want one 0 '^1$' rows --rounds 1
want profile 0 '^0$' rows --rounds 0
want no-graphs 0 '^G2/step +not measured: the device has no CUDA graphs$' \
  "$bench" --divide 512 --rounds 1 --cases G2

# The script's cases, of a torch that computes nothing: --against finds them by
# their names. torch compiles none of their calls for a gradient.
cat >anything.py <<'PY'
import os, sys


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

    def __enter__(self):
        return self

    def __exit__(self, *args):
        pass


for name in "add sub mul truediv matmul pow neg radd rsub rmul rpow".split():
    setattr(Anything, f"__{name}__", lambda self, *args: self)
if "REFUSES" in os.environ:
    setattr(Anything, os.environ["REFUSES"], lambda self, other: 1 / 0)
torch = sys.modules["torch"] = Anything()
torch.compile = lambda fn: fn
PY
cat >names.py <<'PY'
import importlib.util, sys
from anything import torch

spec = importlib.util.spec_from_file_location("gpu_bench", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
names, inside, gradients = [], [], []


def grad(*args, **kwargs):
    if inside:
        sys.exit(f"{names[-1]}: the compiled part takes a gradient")
    gradients.append(names[-1])
    return torch


torch.grad = torch.backward = grad


def case(self, name, fn, forward=None, **others):
    def compiled():
        inside.append(name)
        forward()
        inside.pop()
        return torch

    names.append(name)
    fn(*[compiled] * bool(forward))


module.Bench.case = case
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
print(len(names), "cases,", len(gradients), "with a gradient")
PY
want script-without-it 1 'there is no G6; write some of G1/feed-forward, ' \
  python3 "$script" --cases G1,G6
want script 0 '^21 cases, 13 with a gradient$' python3 names.py "$script"

# Cases that come one by one have a row each. The process ends with one that
# torch refuses altogether.
cat >serve.py <<'PY'
import runpy, sys, anything

sys.argv = sys.argv[1:] + ["--serve", "--device", "cpu", "--rounds", "1", "--divide", "512"]
runpy.run_path(sys.argv[0], run_name="__main__")
PY
served() { printf '%s\tall.json\t%s.json\n' G2/add first G3/swiglu second | python3 serve.py "$script"; }
for pattern in '^ready$' '^G2/add +eager .* of ours\), compiled .*; goal >= 2.5 of eager: ' \
  '^G3/swiglu +eager ' '^done$'; do
  want "served $pattern" 0 "$pattern" served
done
want served-file 0 '"case": "G3/swiglu"' cat second.json
rm first.json second.json
REFUSES=__add__ want refused-first 1 '^G2/add: torch has computed no side of it$' served
want refused-rest 2 '' ls second.json
REFUSES=__mul__ want refused-second 1 '^G3/swiglu: torch has computed no side of it$' served
mkdir none
echo 'raise ImportError("no torch here")' >none/torch.py
PYTHONPATH=$PWD/none want no-torch 77 '^no torch here$' python3 "$script" --serve

# Its row: the ratios, a side that torch refuses, and the goal.
cat >times.py <<'PY'
import argparse, importlib.util, json, sys


slower = 1


class Torch:
    compile = staticmethod(lambda fn: lambda: slower * fn())


def refuses():
    raise RuntimeError("no kernel\nof any kind")


sys.modules["torch"] = Torch
spec = importlib.util.spec_from_file_location("gpu_bench", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
ours = [
    {"case": c, "seconds": 2e-6, "best_seconds": 1.9e-6, "peak_bytes": 0}
    for c in ("G4/a", "G1/b", "G3/c", "G3/d")
]
with open("ours.json", "w") as f:
    json.dump(ours, f)
b = module.Bench(
    argparse.Namespace(
        against="ours.json", json="torch.json", rounds=3, device="cpu"
    )
)
b.once = lambda fn: fn()
b.case(
    "G4/a",
    lambda fn: fn(),
    lambda: 3e-6,
    cudnn=lambda: 1.97e-6,
    other=refuses,
)
b.case("G1/b", lambda: 3e-6)
slower = 0.5
b.case("G3/c", lambda fn: fn(), lambda: 3e-6)
slower = 1.5
b.case("G3/d", lambda fn: fn(), lambda: 1.9e-6)
PY
want row 0 '^G4/a +eager 3.0 us \(1.500 of ours\), compiled 3.0 us .*, cudnn 2.0 us \(0.985 of ours\), other: no kernel; goal >= 0.98 of cudnn: met$' \
  python3 times.py "$script"
want best 0 '^G1/b .*; goal >= 0.95 of the fastest: met$' python3 times.py "$script"
want compiled 0 '^G3/c +eager 3.0 us .*, compiled 1.5 us \(0.750 of ours\); goal >= 1.0 of compiled: missed$' \
  python3 times.py "$script"
want slow-compiled 0 '^G3/d +eager 1.9 us .*, compiled 2.8 us \(1.425 of ours\), compiled is slower than eager and does not count; goal >= 1.0 of eager: missed$' \
  python3 times.py "$script"
want written 0 '"case": "G1/b"' cat torch.json

exit $((failures > 0))
