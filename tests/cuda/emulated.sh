#!/bin/bash
# Runs a test of GPUs on the emulated plugin; nothing of it may be skipped.
#   emulated.sh PLUGIN TEST [ARGUMENT]...
set -u
export DTENSOR_CUDA_LIBRARY=$PWD/$1
shift
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$@" 2>&1 | tee "$said"
code=${PIPESTATUS[0]}
((code == 0)) || exit "$code"
if grep -q 'SKIPPED' "$said"; then
  echo "$1: a test was skipped, and a GPU is there"
  exit 1
fi
grep -q '^\[  PASSED  \] [1-9]' "$said" || { echo "$1: no test ran"; exit 1; }
