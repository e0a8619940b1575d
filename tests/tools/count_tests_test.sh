#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests tools/count_tests.py with hand-written events and results.
set -u

tool=$PWD/tools/count_tests.py
cd "${TEST_TMPDIR:?run this with bazel test}" || exit 1
failures=0

# want NAME STATUS LAST-LINE [ARGUMENT...]: counts ./events, which it removes.
want() {
  local name=$1 status=$2 line=$3 out got
  shift 3
  out=$(python3 "$tool" events "$@" 2>&1)
  got=$?
  if [[ $got != "$status" || ${out##*$'\n'} != "$line" ]]; then
    printf '%s: wanted status %s and "%s", got %s and\n%s\n' \
      "$name" "$status" "$line" "$got" "$out"
    failures=$((failures + 1))
  fi
  rm -f events
}

# test_target LABEL: a test that was built.
test_target() {
  printf '{"id":{"targetConfigured":{"label":"%s"}},"configured":{"testSize":"MEDIUM"}}\n' "$1"
  printf '{"id":{"targetCompleted":{"label":"%s"}},"completed":{"success":true}}\n' "$1"
}

# result LABEL STATUS XML [SHARD [ATTEMPT]]: what it left behind.
result() {
  printf '{"id":{"testResult":{"label":"%s","run":1,"shard":%s,"attempt":%s}},"testResult":{"status":"%s","testActionOutput":[{"name":"test.xml","uri":"file://%s/%s"}]}}\n' \
    "$1" "${4:-1}" "${5:-1}" "$2" "$PWD" "$3"
}

not_built() {
  printf '{"id":{"targetCompleted":{"label":"%s"}},"completed":{}}\n' "$1"
}

# finished CODE: Bazel came to its end.
finished() {
  printf '{"id":{"buildFinished":{}},"finished":{"exitCode":{"code":%s}}}\n' "$1"
}

cat >two_ok.xml <<'XML'
<testsuites><testsuite name="A">
  <testcase name="a" status="run"/><testcase name="b" status="run"/>
</testsuite></testsuites>
XML
cat >mixed.xml <<'XML'
<testsuites><testsuite name="A">
  <testcase name="ok" status="run"/>
  <testcase name="bad" status="run"><failure/><failure/></testcase>
  <testcase name="no_gpu" status="run"><skipped/></testcase>
  <testcase name="DISABLED_off" status="notrun"/>
</testsuite></testsuites>
XML
cat >crash.xml <<'XML'
<testsuites><testsuite name="x" tests="1" errors="1">
  <testcase name="x" status="run"><error message="exited with error code 134"/></testcase>
</testsuite></testsuites>
XML
echo '<testsuites><testsuite><testca' >half.xml

{ test_target //a; result //a PASSED two_ok.xml; finished 0; } >events
want passes 0 '2 passed, 0 failed'

{ test_target //a; result //a FAILED mixed.xml; finished 3; } >events
want mixed 1 '1 passed, 1 failed, 2 skipped'

{ test_target //a; result //a PASSED two_ok.xml
  test_target //b; result //b FAILED crash.xml; finished 3; } >events
want crash 1 '2 passed, 1 failed'

# The result of a test that failed cannot turn it into one that passed.
{ test_target //a; result //a TIMEOUT two_ok.xml; finished 3; } >events
want timeout 1 '2 passed, 1 failed'
{ test_target //a; result //a PASSED half.xml; finished 0; } >events
want half-written 1 '0 passed, 1 failed'
{ test_target //a; result //a PASSED nowhere.xml; finished 0; } >events
want no-result 1 '0 passed, 1 failed'

{ test_target //a; result //a PASSED two_ok.xml 1
  result //a PASSED two_ok.xml 2; finished 0; } >events
want shards 0 '4 passed, 0 failed'
{ test_target //a; result //a FAILED crash.xml 1 1
  result //a PASSED two_ok.xml 1 2; finished 0; } >events
want second-attempt 0 '2 passed, 0 failed'

{ test_target //a; result //a PASSED two_ok.xml
  not_built //lib; finished 1; } >events
want library-not-built 1 '2 passed, 1 failed'
{ test_target //a; finished 1; } >events
want not-run 1 '0 passed, 1 failed'
# A BUILD file that does not parse leaves no event but the exit code.
{ test_target //a; result //a PASSED two_ok.xml; finished 1; } >events
want exit-code 1 '2 passed, 1 failed'
{ test_target //a; result //a PASSED two_ok.xml; } >events
want bazel-died 1 '2 passed, 1 failed'
printf '{"id":' >events
want cut-short 1 '0 passed, 1 failed'
finished 0 >events
want nothing-ran 1 '0 passed, 0 failed'
want no-events 1 '0 passed, 1 failed'

{ test_target //a; result //a PASSED two_ok.xml; finished 0; } >events
want other-checks 1 '2 passed, 3 failed' --also-failed 3
want unknown-flag 2 \
  'count_tests.py: error: unrecognized arguments: --frob' --frob

exit $((failures > 0))
