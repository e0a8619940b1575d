#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bazel is told which headers nvcc did not read (tools/cuda.bzl). A header that
# nvcc did read must not be among them: a change of it would leave old kernels.
#
#     unused_headers_test.sh LIST...
set -u

if (($# == 0)); then
  echo "skipped: $NVCC"
  exit 0
fi
failures=0
said() {
  printf '%s\n' "$1"
  failures=$((failures + 1))
}
rows=
for list; do
  # All sources of kernels read it.
  grep -qx dtensor/device/device.h "$list" && said "$list: device.h was read"
  [[ $list != */rows.cc.unused ]] || rows=$list
done
grep -q 'ops/kernels/rows\.h$' "$rows" && said "$rows: rows.h was read"
grep -q 'ops/kernels/norm\.h$' "$rows" || said "$rows: norm.h was not read"
((failures == 0)) || exit 1
echo "$# lists"
