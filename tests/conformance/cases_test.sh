#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The checked-in cases: that every function of ops has one, and that
# tools/choose_cases.py made them.
#   cases_test.sh RUNNER
set -uo pipefail
root=$PWD runner=$PWD/$1
. tests/want.sh
untested() { python3 "$root/tools/untested_functions.py" "$@"; }
choose() { python3 "$root/tools/choose_cases.py" --runner "$runner" "$@"; }

want "every function" 0 '^[0-9]{3} public functions, 0 complaints$' \
  untested --cases "$root"
# Chosen again from themselves, they are the same.
data=$root/tests/conformance/data
mkdir again
want "a choice" 0 '^([0-9]+) of \1 cases, of [0-9]+ operators, [0-9]+ bytes$' \
  choose "$data" --out again
for file in cases.jsonl tensors.safetensors; do
  want "chosen again" 0 identical diff -sq "$data/$file" "again/$file"
done

# edited FILE EDIT...: --cases of a copy in which sed edited the file.
edited() {
  [[ -d tree ]] || { mkdir tree && cp -rL "$root"/{dtensor.h,placement,dtensor,ops,nn,program,tests} tree/ && chmod -R u+w tree; }
  cp "tree/$1" saved
  sed -i "${@:2}" "tree/$1"
  ! cmp -s saved "tree/$1" || echo "sed changes nothing in $1"
  untested --cases tree
  local status=$?
  cp saved "tree/$1"
  return $status
}
cases=tests/conformance/data/cases.jsonl
want "an entry without a case" 1 '^no case calls the entry softmax$' \
  edited $cases '/"op": "softmax"/d'
want "a function of the lists without a case" 1 \
  '^no case calls ops/functions/trigonometric.h: hypot; write its entry' \
  edited $cases '/"op": "hypot"/d'
want "a function without an entry" 1 \
  '^no case calls ops/contraction.h: kron; write its entry' \
  edited tests/conformance/calls_sum.cc '/kron/d'
want "a test that does not call it" 1 \
  '^tests/ops/summa_test.cc does not call summa_panels, which has no case$' \
  edited tests/ops/summa_test.cc 's/summa_panels(/other(/'
want "a function that has a case by now" 1 \
  '^ops/attention.h: rotary has a case; take it out' \
  edited tests/conformance/calls_sum.cc '$a T f(A a) { return {rotary(a.tensor(0))}; }'

# other FILE EDIT...: a choice from a copy in which sed edited the file.
other() {
  rm -rf other && mkdir other && cp -L "$data"/*s* other/ && chmod -R u+w other
  sed -i "${@:2}" "other/$1"
  choose other --out again
}
want "an unknown field" 1 'has the unknown field complex' \
  other cases.jsonl '1s/"tier"/"complex": 1, "tier"/'
want "an unknown argument" 1 'an argument of an unknown kind: {"complex": 1}' \
  other cases.jsonl '1s/"kwargs": {}/"kwargs": {"x": {"complex": 1}}/'
want "a tensor that is not there" 1 'names the tensor abs/none, which is not there' \
  other cases.jsonl '1s#"args": \[{"tensor": "[^"]*"#"args": [{"tensor": "abs/none"#'
want "a case twice" 1 '2 cases have the id' other cases.jsonl '1{p}'
want "a line that is no JSON" 1 'cannot read the cases of other' \
  other cases.jsonl '1s/^{/[/'
# Its cotangent as its output.
want "a wrong value" 1 'a case that fails cannot be checked in: FAILED kron/f64' \
  other cases.jsonl -E '/"id": "kron.f64/s#"[^"]*"(\].*"cotangents": \{"[^"]*": )("[^"]*")#\2\1\2#'
want "no runner" 1 'cannot run ./none' \
  choose --runner ./none "$data" --out again
want "no cases" 1 'cannot read the cases of none: ' choose none --out again
want "no folder" 2 'there is no such folder' choose "$data" --out none
want "an unknown option" 2 'unrecognized arguments: --most' \
  choose "$data" --out again --most
want "help" 0 'Chooses the operator cases' choose --help
want "an unknown option of the other" 2 '--cases' untested --cases --all
exit $((failures > 0))
