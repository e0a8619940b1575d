#!/bin/bash
# gpu_bench runs to its end, on emulated GPUs.
#
#   gpu_bench_test.sh GPU_BENCH GPU_BENCH_PY PLUGIN
set -u

bench=$PWD/$1 script=$PWD/$2
export DTENSOR_CUDA_LIBRARY=$PWD/$3
. tests/want.sh

want no-case 2 'there is no G9; write some of G1 to G8' "$bench" --cases G1,G9

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
# A case alone, and for a profiler: a row for it, and none.
rows() { "$bench" --device cuda --divide 512 --cases G3/swiglu "$@" | wc -l; }
want one 0 '^1$' rows --rounds 1
want profile 0 '^0$' rows --rounds 0
want no-graphs 0 '^G2/step +not measured: the device has no CUDA graphs$' \
  "$bench" --divide 512 --rounds 1 --cases G2

exit $((failures > 0))
