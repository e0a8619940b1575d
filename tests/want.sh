# SPDX-License-Identifier: Apache-2.0
# For tests that are scripts: sourced, in the folder that Bazel starts them in,
# which it leaves for one that may be written to. They end with
# `exit $((failures > 0))`.
cd "${TEST_TMPDIR:?run this with bazel test}" || exit 1
failures=0

# want NAME STATUS PATTERN COMMAND...: its status, and a line of what it prints.
want() {
  local name=$1 status=$2 pattern=$3 got
  shift 3
  "$@" >out 2>&1
  got=$?
  [[ $got == "$status" ]] && grep -qE -- "$pattern" out && return
  echo "$name: wanted status $status and /$pattern/, got $got and"
  cat out
  failures=$((failures + 1))
}
