#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The checked-in cases, and that the runner can fail.
#   conformance_test.sh RUNNER DATA
set -uo pipefail
runner=$1 data=$2 failures=0

expect() {  # NAME WANTED GOT
  [[ $3 == "$2" ]] && return
  echo "FAILED $1: wanted '$2', got '$3'"
  failures=$((failures + 1))
}

# The second time as a GPU computes them, and the third time reproducibly.
for how in "--mesh 3,2x2 --layouts 4" "--mesh 2x2 --layouts 2 --device late" \
  "--mesh 3,2x2 --layouts 4 --reproducible"; do
  # shellcheck disable=SC2086
  out=$("$runner" "$data" $how 2>/dev/null)
  expect "exit status of the cases with $how" 0 $?
  last=$(tail -n 1 <<<"$out")
  if [[ $last =~ ^([0-9]+)\ passed,\ 0\ failed,\ ([0-9]+)\ skipped$ ]] &&
    ((BASH_REMATCH[1] >= 900 && BASH_REMATCH[2] == 0)); then
    echo "$last"
  else
    echo "$out"
    failures=$((failures + 1))
  fi
done

# A wrong output and a wrong gradient are noticed, and named.
mkdir "$TEST_TMPDIR/wrong"
cp "$data/tensors.safetensors" "$TEST_TMPDIR/wrong/"
grep '"id": "square/f64' "$data/cases.jsonl" | tail -n 1 >"$TEST_TMPDIR/one"
input=$(sed 's/.*"args": \[{"tensor": "\([^"]*\)"}.*/\1/' "$TEST_TMPDIR/one")
for field in out0 grad0; do
  sed "s#: \(\[\?\)\"[^\"]*\.$field\"#: \1\"$input\"#" \
    "$TEST_TMPDIR/one" >"$TEST_TMPDIR/wrong/cases.jsonl"
  cmp -s "$TEST_TMPDIR/one" "$TEST_TMPDIR/wrong/cases.jsonl" &&
    expect "a changed $field" changed same
  out=$("$runner" "$TEST_TMPDIR/wrong" --mesh 2 2>/dev/null)
  expect "exit status of a wrong $field" 1 $?
  expect "last line of a wrong $field" "0 passed, 1 failed, 0 skipped" \
    "$(tail -n 1 <<<"$out")"
  grep -q '^FAILED square/f64' <<<"$out"
  expect "name of a wrong $field" 0 $?
done
"$runner" "$TEST_TMPDIR/wrong" --mesh 2 --no-grad >/dev/null 2>&1
expect "a wrong gradient without gradients" 0 $?

# Integers beyond 2^53 are exact: a sum that is wrong by one has failed.
rm -f "$TEST_TMPDIR/wrong/tensors.safetensors"
for wrong in 0 1; do
  python3 - "$TEST_TMPDIR/wrong" $wrong <<'END'
import json, struct, sys
folder, wrong = sys.argv[1], int(sys.argv[2])
large = -4611686018427400249, 2**62 + 1, 2**53 + 1
tensors = {"x": large, "y": (2, 3, 5),
           "sum": (large[0] + 2 + wrong, large[1] + 3, large[2] + 5)}
header = {name: {"dtype": "I64", "shape": [3], "data_offsets": [24 * i, 24 * i + 24]}
          for i, name in enumerate(tensors)}
text = json.dumps(header).encode()
with open(folder + "/tensors.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for values in tensors.values():
        f.write(struct.pack("<3q", *values))
with open(folder + "/cases.jsonl", "w") as f:
    json.dump({"id": "add/i64", "op": "add", "tier": 1, "kwargs": {},
               "args": [{"tensor": "x"}, {"tensor": "y"}], "outputs": ["sum"],
               "rtol": 0, "atol": 0}, f)
END
  out=$("$runner" "$TEST_TMPDIR/wrong" --mesh 2,2x2 2>/dev/null)
  expect "exit status of large integers, wrong by $wrong" $wrong $?
  expect "large integers, wrong by $wrong" \
    "$((1 - wrong)) passed, $wrong failed, 0 skipped" "$(tail -n 1 <<<"$out")"
done
cp "$data/tensors.safetensors" "$TEST_TMPDIR/wrong/"

# A call that has to throw, and does not.
sed -e 's/"outputs": \[[^]]*\]/"throws": "never"/' "$TEST_TMPDIR/one" \
  >"$TEST_TMPDIR/wrong/cases.jsonl"
"$runner" "$TEST_TMPDIR/wrong" --mesh 2 >/dev/null 2>&1
expect "exit status of what does not throw" 1 $?

# An argument that the entry does not pass is no pass.
sed -e 's/"kwargs": {}/"kwargs": {"unheard": 1}/' "$TEST_TMPDIR/one" \
  >"$TEST_TMPDIR/wrong/cases.jsonl"
out=$("$runner" "$TEST_TMPDIR/wrong" --mesh 2 2>/dev/null | tail -n 1)
expect "an unknown argument" "0 passed, 0 failed, 1 skipped" "$out"

for bad in "--ops nosuch" "--nosuch" "--mesh 2y" "--tier 3" "--layouts 0" \
  "--device gpu"; do
  # shellcheck disable=SC2086
  "$runner" "$data" $bad >/dev/null 2>&1
  expect "exit status of $bad" 2 $?
done
"$runner" /nosuch >/dev/null 2>&1
expect "exit status of a folder that is not there" 2 $?
"$runner" --help >/dev/null
expect "exit status of --help" 0 $?

exit $((failures > 0))
