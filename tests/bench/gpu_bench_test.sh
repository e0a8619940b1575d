#!/bin/bash
# gpu_bench runs to its end, on emulated GPUs, and torch's script has its cases.
#
#   gpu_bench_test.sh GPU_BENCH GPU_BENCH_PY PLUGIN
set -u

bench=$PWD/$1 script=$PWD/$2
export DTENSOR_CUDA_LIBRARY=$PWD/$3
. tests/want.sh

want no-case 2 'there is no G9; write some of G1 to G8' "$bench" --cases G1,G9

# Each rank's clock says something else: what it sends has to meet nevertheless.
want ranks 0 '^G6 MLP on 4 ranks' "$bench" --mesh tp=4 --cases G6 --divide 128 \
  --rounds 40 --timeout 20
for case in 'MLP on 2 ranks' 'all-gather of' 'reduce-scatter of' 'all-reduce of'; do
  want "sharing, $case" 0 "^G6 $case" "$bench" --device cuda --mesh tp=2 \
    --ranks-per-gpu 2 --cases G6 --divide 256 --rounds 1
done

want all 0 '^G8 AdamW' "$bench" --device cuda --divide 512 --rounds 1 --json all.json
for i in G1 'G2 add' 'G2 step' G3 G4 G5 G6 G7 G8; do
  want "all's $i" 0 "\"case\": \"$i " cat all.json
done

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
ours = [row["case"] for row in json.load(open("all.json"))]
# A GPU's ranks are not torch's.
ours = [name for name in ours if not name.startswith("G6 ")]
if names != ours:
    print("torch's", names, "\nours", ours, sep="\n")
    sys.exit(1)
print(len(names), "cases")
PY
want script-without-it 1 'there is no G6; write some of G1,' \
  python3 "$script" --cases G1,G6
want script 0 '^[0-9]+ cases$' python3 names.py "$script"

exit $((failures > 0))
