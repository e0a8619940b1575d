#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the program of this folder as other projects would: with
# Bazel, then with CMake and with pkg-config against //:dist, unpacked in a
# place that nobody knew when it was made. Compiles the library once more, for
# Bazel's names of another workspace's files are part of what it caches.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

want() {  # want COMMAND...: it prints the sum
  local out
  out=$("$@" --mesh dp=3,tp=2)
  echo "$out"
  [[ $out == *" on dp=3,tp=2: 720" ]]
}

# Without CUDA, which says nothing new here, and with the flags that
# docs/using_elsewhere.md gives for a shorter build.
echo "-- Bazel"
CUDA_HOME=no bazel --max_idle_secs=5 build --nosandbox_debug --noshow_progress \
  --strategy=CppCompile=local --features=-supports_dynamic_linker \
  --features=-supports_pic --copt=--param=ggc-min-heapsize=524288 \
  --symlink_prefix="$work/bazel-" //:consumer
want "$work/bazel-bin/consumer"

cd ../..
bazel build --noshow_progress --symlink_prefix="$work/dist-" //:dist
mkdir "$work/anywhere"
tar -xzf "$work"/dist-bin/dtensor-*.tar.gz -C "$work/anywhere"
prefix=$(echo "$work"/anywhere/dtensor-*)

echo "-- CMake"
cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" ||
  { cat "$work/log"; exit 1; }
cmake --build "$work/cmake"
want "$work/cmake/consumer"

echo "-- pkg-config"
read -ra flags < <(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" \
  pkg-config --cflags --libs "dtensor = ${prefix##*-}")
c++ -std=c++20 -I"$here" "$here/main.cc" "${flags[@]}" -o "$work/program"
want "$work/program"

# Each header that is there finds what it includes there, whoever comes first.
echo "-- headers"
cd "$prefix/include"
find . -name '*.h' -printf '#include "%P"\n' | sort -r >"$work/headers.cc"
c++ -std=c++20 -Wall -Wextra -fsyntax-only "${flags[@]}" "$work/headers.cc"
echo "$(wc -l <"$work/headers.cc") headers"

# A compiler for an older standard than C++20 gets a sentence.
if c++ -std=c++17 -fsyntax-only -I"$here" "$here/main.cc" "${flags[@]}" \
  2>"$work/log"; then
  echo "C++17 compiles" && exit 1
fi
grep -q 'dtensor is C++20: compile with' "$work/log"
