#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The flags of the benchmarks: --help, --version, and errors.
#   flags_test.sh BENCH...
set -uo pipefail
benches=("${@/#/$PWD/}")
. tests/want.sh
for bench in "${benches[@]}"; do
  name=${bench##*/}
  want "help of $name" 0 "^usage: $name \[flags\]$" "$bench" --help
  want "version of $name" 0 "^$name \(dtensor [0-9.]+\)$" "$bench" --version
  want "an unknown flag of $name" 2 \
    "^$name: \[flags\] there is no flag --nosuch; --help lists" "$bench" --nosuch
done
want "a number out of range" 2 \
  '^plan_bench: \[--rounds\] 0 is too small; write a whole number from 1 to 2147483647$' \
  "${benches[0]}" --rounds 0
want "an error of the run" 1 \
  '^checkpoint_bench: \[bench\] /.* is there already; name a new folder$' \
  "${benches[1]}" --dir "$PWD"
exit $((failures > 0))
