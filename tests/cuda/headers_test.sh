#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No .h of this tree includes a header of CUDA's, cuBLAS's, cuDNN's, NCCL's or
# CUB's; a .cuh may. A .h includes a .cuh where nvcc reads it, and nowhere else.
set -u

foreign='^ *# *include *[<"](cuda|cublas|cudnn|cub/|thrust/|curand|nvml|nccl\.h)'
own='^ *# *include *".*\.cuh"'
failures=0
said() {
  printf '%s\n' "$1"
  failures=$((failures + 1))
}

mapfile -t headers < <(find -L . -name '*.h' ! -path '*/emulation/*' | sort)
mapfile -t of_cuda < <(find -L . -name '*.cuh' | sort)
((${#headers[@]} > 60)) || said "only ${#headers[@]} headers are here"
# (Or the pattern finds nothing.)
((${#of_cuda[@]})) && grep -qE "$foreign" "${of_cuda[@]}" ||
  said "no .cuh includes a header of CUDA's"

for header in "${headers[@]}"; do
  line=$(grep -nE "$foreign" "$header") &&
    said "$header:$line: of CUDA's; name the header .cuh"
  grep -qE "$own" "$header" || continue
  awk '
    /^ *# *if/ { depth++; nvcc[depth] = /__CUDACC__/ }
    /^ *# *el/ { nvcc[depth] = 0 }
    /^ *# *endif/ { depth-- }
    /^ *# *include *".*\.cuh"/ {
      for (d = 1; d <= depth; d++) if (nvcc[d]) next
      bad = 1
    }
    END { exit bad }' "$header" ||
    said "$header: includes a .cuh outside of #if ... __CUDACC__"
done
((failures == 0)) || exit 1
echo "${#headers[@]} headers, ${#of_cuda[@]} of CUDA's"
