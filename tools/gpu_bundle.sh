#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs everything that tests and measures a GPU. See usage().
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/gpu_bundle.sh [--march CPU] [--max MIB] [--glibc VERSION] OUT

Builds the tests that use a GPU, the programs, the benchmark and
libdtensor_cuda.so, and packs them with the libraries that they need into OUT: a
folder that does not exist yet, or an archive: its name ends in .tar.xz (the
smallest), .tar.zst (needs zstd on both machines) or .tar.gz. The machine with the
GPU only needs its driver and CUDA's libraries to run it, and neither Bazel nor a
compiler nor packages:

  tar xf OUT && gpu_bundle/run.sh --leg 1

This machine needs nvcc and cuDNN's C++ headers, but no GPU. A first build
takes a quarter of an hour on two cores, so build the bundle before the machine with
the GPU is at hand.
Building again compiles only what has changed.

  --march CPU  the CPU that the host code is compiled for, as in g++ -march
               (default x86-64-v3: CPUs since 2013; native: CPUs like this one)
  --max MIB    the largest archive that is of use (default 60); a larger one is
               not made
  --glibc VERSION  the C library of the machine with the GPU (default 2.39,
               Ubuntu 24.04's); nothing may need a newer one

DTENSOR_CUDA_ARCHS=80-real,90 selects the GPUs (default 90-real: H100 and H200),
and CUDA_HOME the toolkit.
TEXT
}

# fail WHY: exits with the status of bad input.
fail() {
  echo "gpu_bundle.sh: $1" >&2
  exit 2
}

march=x86-64-v3 max=60 glibc=2.39 out=
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --march)
      (($# > 1)) || fail "--march needs a CPU; write --march x86-64-v3"
      march=$2
      shift
      ;;
    --max)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "--max needs a number of MiB; write --max 60"
      max=$2
      shift
      ;;
    --glibc)
      [[ ${2:-} =~ ^[0-9]+\.[0-9]+$ ]] || fail "--glibc needs a version; write --glibc 2.39"
      glibc=$2
      shift
      ;;
    -*) fail "there is no flag $1; see --help" ;;
    *)
      [[ ! $out ]] || fail "$1 is one file too many; OUT is $out already"
      out=$1
      ;;
  esac
  shift
done
[[ $out ]] || fail "OUT is missing; write a folder, or a file that ends in .tar.xz"
pack=()
case $out in
  # Programs share most of their code, so that a window over all of them matters.
  *.tar.xz) pack=(xz "--lzma2=preset=6,dict=128MiB") ;;
  *.tar.zst) pack=(zstd -q -19 --long=27) ;;
  *.tar.gz) pack=(gzip -9) ;;
  *.tar.*) fail "$out ends in neither .tar.xz, .tar.zst nor .tar.gz; write one of these" ;;
esac
[[ ! ${pack[*]} ]] || command -v "${pack[0]}" >/dev/null ||
  fail "$out needs ${pack[0]}, which is not in PATH; write a name that ends in .tar.gz"
[[ ${pack[*]} || ! -e $out ]] ||
  fail "$out exists already; write a new folder, or remove it"
[[ -d $(dirname "$out") ]] || fail "$out cannot be made, because $(dirname "$out") is not a folder"
out=$(realpath "$out")
cd "$(dirname "$0")/.."

found=$(bash third_party/find_cuda.sh 2>&1) ||
  fail "a bundle needs nvcc: $found; ./setup.sh --cuda installs it"
value() { sed -n "s/^$1=//p" <<<"$found"; }
# Without cuDNN, attention would be the slow fallback, and its tests be skipped.
[[ ! $(value note) ]] ||
  fail "a bundle needs all of CUDA's parts: $(value note); ./setup.sh --cuda installs it"
# version HEADER NAME...: as the header defines it, with dots.
version() {
  local folder name text=
  while read -r folder; do
    [[ ! -e $folder/$1 ]] || break
  done < <(value include)
  for name in "${@:2}"; do
    text+=.$(awk -v name="$name" '$2 == name { print $3; exit }' "$folder/$1")
  done
  echo "${text#.}"
}
archs=${DTENSOR_CUDA_ARCHS:-90-real}

# The toolkit that was found, whatever a .bazelrc selects. Code for another CPU
# gets its own output folder, so that the next normal build is still up to date.
nvcc=$(value nvcc)
flags=(
  "--repo_env=CUDA_HOME=${nvcc%/bin/nvcc}"
  "--repo_env=DTENSOR_CUDA_ARCHS=$archs"
)
[[ $march == native ]] ||
  flags+=("--copt=-march=$march" "--platform_suffix=-$march")

plugin=//ops/cuda_plugin:libdtensor_cuda.so
programs=(
  //programs:train
  //programs:explain
  //programs:generate
  //tests/bench:gpu_bench
  //tests/cuda:gpu_properties
  //tests/conformance:conformance
  //tests/dtensor/device:cuda_probe
)
mapfile -t tests < <(bazel query "${flags[@]:0:2}" --noshow_progress \
  'attr(tags, "\bgpu\b", tests(//tests/...))' | sort)
((${#tests[@]})) || fail "bazel finds no tests with the tag gpu in //tests/..."
# A test's name includes its folder: //tests/nn:x_test is bin/nn.x_test.
name_of() { tr /: .. <<<"${1#//tests/}"; }
for label in "${tests[@]}"; do
  name=$(name_of "$label")
  [[ $name == ops.kernels.*_gpu_test ]] || grep -q " $name\( \|$\)" tools/gpu_bundle_run.sh ||
    fail "no leg of tools/gpu_bundle_run.sh runs $name; add an item for it"
done

echo "building ${#tests[@]} tests, ${#programs[@]} programs and the CUDA plugin"
bazel build "${flags[@]}" "$plugin" "${programs[@]}" "${tests[@]}"
built=$(bazel info "${flags[@]}" bazel-bin 2>/dev/null)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/gpu_bundle
mkdir -p "$top"/{bin,lib/fallback,conformance}
copy() { install -m 755 -s "$1" "$2"; }
file_of() { echo "$built/$(tr : / <<<"${1#//}")"; }

for label in "${programs[@]}"; do copy "$(file_of "$label")" "$top/bin/${label#*:}"; done
for label in "${tests[@]}"; do
  copy "$(file_of "$label")" "$top/bin/$(name_of "$label")"
done
copy "$(file_of $plugin)" "$top/lib"

# Libraries of this machine that they need. Debian has no static fmt and oneDNN,
# so these come along with their dependencies. The C++ library goes into
# lib/fallback, for machines with an older one. libc and CUDA come from the
# other machine.
theirs='^(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv))\.so'
cuda='^lib(cublas|cublasLt|cudart|cudnn.*|nccl|nvrtc.*|nvJitLink|cuda)\.so'
for file in "$top"/bin/* "$top"/lib/*.so*; do
  ldd "$file" | awk '$2 == "=>" && $3 ~ "^/" { print $1, $3 }'
done | sort -u | while read -r name path; do
  case $name in
    libstdc++.so* | libgcc_s.so*) install -m 644 "$path" "$top/lib/fallback/$name" ;;
    *)
      [[ $name =~ $theirs || $name =~ $cuda ]] ||
        install -m 644 "$path" "$top/lib/$name"
      ;;
  esac
done
readelf -d "$top"/bin/* "$top"/lib/*.so | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
  grep -E "$cuda" | sort -u >"$top/cuda_libraries" ||
  fail "the programs and the plugin need none of CUDA's libraries, so that they were built without it"

install -m 755 tools/gpu_bundle_run.sh "$top/run.sh"
install -m 644 tests/bench/gpu_bench.py "$top"
install -m 644 LICENSE "$top/text"
install -m 644 tests/conformance/data/{cases.jsonl,tensors.safetensors} "$top/conformance"
# With "-dirty" if the working copy has changes.
commit=$(git -c safe.directory="$PWD" describe --always --dirty 2>/dev/null || echo unknown)
echo "commit $commit, nvcc $(value version) for $archs, host code for $march," \
  "cuDNN $(version cudnn_version.h CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)," \
  "cuBLAS $(version cublas_api.h CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH)," \
  "NCCL $(version nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH)" >"$top/built"

mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1048576 }'; }
# size_of FILE...: MiB of all.
size_of() { mib "$(stat -Lc %s "$@" | awk '{ n += $1 } END { print n + 0 }')"; }
# The newest version of a library's symbols that a program needs.
newest() {
  readelf -VW "$top"/bin/* "$top"/lib/*.so* "$top"/lib/fallback/* 2>/dev/null |
    grep -o "Name: $1_[0-9.]*" | sed 's/^Name: //' | sort -uV | tail -n 1
}
# The C library is the other machine's.
[[ $(printf 'GLIBC_%s\n%s\n' "$glibc" "$(newest GLIBC)" | sort -V | tail -n 1) == "GLIBC_$glibc" ]] ||
  fail "the programs need $(newest GLIBC), but the machine with the GPU has GLIBC_$glibc; build them on one that is as old, or write the --glibc that it has"
cat "$top/built"
echo "MiB before compression:"
for file in "$top"/bin/* "$top"/lib/*.so* "$top/lib/fallback" "$top/conformance" "$top/text"; do
  if [[ -d $file ]]; then
    printf '%8s  %s\n' "$(size_of "$file"/*)" "${file#"$top"/}"
  else
    printf '%8s  %s\n' "$(size_of "$file")" "${file#"$top"/}"
  fi
done
echo "needs of the other machine: $(newest GLIBC), $(newest GLIBCXX) (or lib/fallback's)," \
  "$(paste -sd ' ' "$top/cuda_libraries")"

if [[ ${pack[*]} ]]; then
  trap 'rm -rf "$work" "$out.part"' EXIT
  tar -C "$work" -c gpu_bundle | "${pack[@]}" >"$out.part"
  bytes=$(stat -c %s "$out.part")
  ((bytes <= max << 20)) ||
    fail "$out would have $(mib "$bytes") MiB, more than $max; write a name that ends in .tar.xz, DTENSOR_CUDA_ARCHS=90-real, or a larger --max"
  mv "$out.part" "$out"
  echo "$out: $(mib "$bytes") MiB, unpacked $(du -sh "$top" | cut -f 1)"
else
  cp -r "$top" "$out"
  echo "$out: $(du -sh "$out" | cut -f 1)"
fi
