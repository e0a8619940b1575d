#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A fixed sample passes; a failure is noticed, made smaller and can be repeated.
#   random_programs_test.sh PROGRAM
set -uo pipefail
program=$1 failures=0

expect() {  # NAME WANTED GOT
  [[ $3 == "$2" ]] && return
  echo "FAILED $1: wanted '$2', got '$3'"
  failures=$((failures + 1))
}

written=$TEST_TMPDIR/programs
out=$("$program" --seed 1 --programs 300 --write "$written")
expect "exit status of the sample" 0 $?
echo "$out"
refused=$(sed -n 's/.* \([0-9]*\) refused$/\1/p' <<<"$out")
((refused <= 6)) || expect "programs refused" "at most 6" "$refused"
expect "programs written" $((300 - refused)) "$(wc -l <"$written")"
"$program" --seed 1 --programs 60 --pipelines
expect "exit status of the pipelines" 0 $?

# Supposes that every cumsum is wrong: one operator is left.
out=$("$program" --seed 1 --programs 100 --wrong cumsum 2>/dev/null)
expect "exit status of a wrong operator" 1 $?
small=$(sed -n '/smallest/,/repeat/p' <<<"$out" | sed '/repeat/q')
grep -q "of 1 operators" <<<"$small"
expect "the smallest program" 0 $?
grep -q "v1 = cumsum(v0, dim=" <<<"$small"
expect "its operator" 0 $?
again=$(grep -o -m 1 -e '--seed .*' <<<"$out")
# shellcheck disable=SC2086
expect "the same program again" "$(head -n 4 <<<"$out")" \
  "$("$program" $again 2>/dev/null | head -n 4)"
((failures)) && echo "$out"

out=$("$program" --programs 1 --pipelines --wrong tanh 2>/dev/null)
expect "exit status of a wrong pipeline" 1 $?
grep -q "gpipe of 1 positions, 1 chunks, 1 micro-batches; 1 ranks" <<<"$out"
expect "the smallest pipeline" 0 $?

for bad in --nosuch "--programs 0" "--seed x" "--pipelines --write x"; do
  # shellcheck disable=SC2086
  "$program" $bad >/dev/null 2>&1
  expect "exit status of $bad" 2 $?
done
"$program" --help >/dev/null
expect "exit status of --help" 0 $?

exit $((failures > 0))
