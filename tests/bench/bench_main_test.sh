#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The report of a bench speaks of no debug build, and has its figures, as text
# and as JSON.
set -u
said=$("$1" --benchmark_min_time=0.001 2>&1) || exit 1
case "$said" in
  *DEBUG*) echo "$said"; exit 1 ;;
esac
case "$said" in
  *Iterations*) ;;
  *) echo "$said"; exit 1 ;;
esac
"$1" --benchmark_min_time=0.001 --benchmark_format=json 2>/dev/null |
  grep -q '"iterations"'
