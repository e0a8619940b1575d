#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA toolkit for cuda.bzl and ../setup.sh. If $CUDA_HOME is set,
# only that folder counts (CUDA_HOME=no builds without CUDA). Otherwise takes
# the first complete toolkit of $CUDA_PATH, /usr/local/cuda, the nvcc on PATH,
# and the one that `./setup.sh --cuda` has installed.
#
# Prints lines NAME=VALUE: nvcc, version, an `include` for each folder, a
# `library` for each file, `cuobjdump` if there is one with nvdisasm beside it,
# which it runs, and a `note` for an optional part that is missing. If there is
# no toolkit, prints the reason to stderr and exits with 1.
set -u

# The first version with C++20.
oldest=12.0
installed=${XDG_DATA_HOME:-${HOME:-}/.local/share}/dtensor

missing() {
  echo "$1" >&2
  return 1
}

# first_with NAME FOLDER...: prints the first of the folders that has NAME.
first_with() {
  local name=$1 folder
  shift
  for folder; do
    [[ -e $folder/$name ]] && echo "$folder" && return
  done
  return 1
}

# describe HOME: prints the lines for the toolkit in HOME.
describe() {
  local home=$1 version root header library folder file note=
  local includes=() libraries=() header_folders=() library_folders=() found
  version=$("$home/bin/nvcc" --version 2>&1 |
    sed -n 's/.*release.*, V\([0-9.]*\).*/\1/p')
  [[ $version ]] || missing "$home/bin/nvcc does not run" || return
  [[ $(printf '%s\n' $oldest "$version" | sort -V | head -n 1) == "$oldest" ]] ||
    missing "$home/bin/nvcc is $version; C++20 needs $oldest or newer" || return

  # cuDNN and NCCL are separate packages: in the same folder, beside it
  # (Python's wheels), or in Debian's folders for libraries.
  for root in "$home" "$home"/../{cudnn,nccl} /usr; do
    header_folders+=("$root/include")
    library_folders+=("$root/lib64" "$root/lib")
  done
  header_folders+=("$home/include/cccl" /usr/include/x86_64-linux-gnu)
  library_folders+=(/usr/lib/x86_64-linux-gnu)

  for header in cuda_runtime.h nv/target cublasLt.h cudnn.h nccl.h; do
    folder=$(first_with $header "${header_folders[@]}") ||
      missing "CUDA $version in $home has no $header" || return
    includes+=("$folder")
  done
  # cuDNN's C++ layer has only headers. Its wheel puts them beside nvidia/.
  if folder=$(first_with cudnn_frontend.h "${header_folders[@]}" \
    "$home/../../include" "$installed/cudnn-frontend/include"); then
    includes+=("$folder")
  else
    note='attention without cuDNN: no cudnn_frontend.h'
  fi
  # By their full names, because a wheel has libx.so.1 but no libx.so. cuDNN
  # compiles kernels with NVRTC at run time.
  for library in libcublasLt.so.* libcudnn.so.* libnccl.so.* libnvrtc.so.* \
    libcudart_static.a; do
    for folder in "${library_folders[@]}"; do
      file=$(compgen -G "$folder/$library" | sort -V | head -n 1)
      [[ $file ]] && break
    done
    [[ $file ]] || missing "CUDA $version in $home has no $library" || return
    libraries+=("$file")
  done

  echo "nvcc=$home/bin/nvcc"
  echo "version=$version"
  printf '%s\n' "${includes[@]}" | sort -u | sed 's/^/include=/'
  printf 'library=%s\n' "${libraries[@]}"
  # Only a test runs it.
  found=$(command -v cuobjdump) && found=$(readlink -f "$found")
  for folder in "$home/bin" ${found:+"${found%/*}"} \
    "$installed/cuda-disassembler/bin"; do
    [[ -x $folder/cuobjdump && -x $folder/nvdisasm ]] || continue
    echo "cuobjdump=$folder/cuobjdump"
    break
  done
  [[ ! $note ]] || echo "note=$note"
}

if [[ ${CUDA_HOME:-} ]]; then
  places=("$CUDA_HOME")
else
  nvcc=$(command -v nvcc) && nvcc=$(readlink -f "$nvcc")
  places=(${CUDA_PATH:+"$CUDA_PATH"} /usr/local/cuda
    ${nvcc:+"${nvcc%/bin/nvcc}"}
    "$installed/cuda")
fi
reason=
for home in "${places[@]}"; do
  [[ -x $home/bin/nvcc ]] || continue
  found=$(describe "$home" 2>&1) && echo "$found" && exit
  reason=${reason:-$found}
done
missing "${reason:-no nvcc in ${CUDA_HOME:+CUDA_HOME=}${places[*]}}"
