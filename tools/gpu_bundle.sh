#!/bin/bash
# Packs everything that tests and measures a GPU. See usage().
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/gpu_bundle.sh [--march CPU] OUT

Builds the tests that use a GPU, the programs, the benchmark and
libdtensor_cuda.so, and packs them with the libraries that they need into OUT: a
folder that does not exist yet, or a file with a name that ends in .tar.gz. The
machine with the GPU only needs its driver and CUDA's libraries to run it, and
neither Bazel nor a compiler nor packages:

  tar xzf OUT && gpu_bundle/run.sh

This machine needs nvcc, but no GPU.

  --march CPU  the CPU that the host code is compiled for, as in g++ -march
               (default x86-64-v3: CPUs since 2013; native: CPUs like this one)

DTENSOR_CUDA_ARCHS=80-real,90 selects the GPUs, and CUDA_HOME the toolkit.
TEXT
}

# fail WHY: exits with the status of bad input.
fail() {
  echo "gpu_bundle.sh: $1" >&2
  exit 2
}

march=x86-64-v3 out=
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
    -*) fail "there is no flag $1; see --help" ;;
    *)
      [[ ! $out ]] || fail "$1 is one file too many; OUT is $out already"
      out=$1
      ;;
  esac
  shift
done
[[ $out ]] || fail "OUT is missing; write a folder, or a file that ends in .tar.gz"
[[ $out == *.tar.gz || ! -e $out ]] ||
  fail "$out exists already; write a new folder, or remove it"
[[ -d $(dirname "$out") ]] || fail "$out cannot be made, because $(dirname "$out") is not a folder"
out=$(realpath "$out")
cd "$(dirname "$0")/.."

found=$(bash third_party/find_cuda.sh 2>&1) ||
  fail "a bundle needs nvcc: $found; ./setup.sh --cuda installs it"
value() { sed -n "s/^$1=//p" <<<"$found"; }

# The toolkit that was found, whatever a .bazelrc selects. Code for another CPU
# gets its own output folder, so that the next normal build is still up to date.
nvcc=$(value nvcc)
flags=(
  "--repo_env=CUDA_HOME=${nvcc%/bin/nvcc}"
  "--repo_env=DTENSOR_CUDA_ARCHS=${DTENSOR_CUDA_ARCHS:-80-real,90}"
)
[[ $march == native ]] ||
  flags+=("--copt=-march=$march" "--platform_suffix=-$march")

plugin=//ops/cuda_plugin:libdtensor_cuda.so
programs=(
  //examples:train
  //examples:explain
  //tests/bench:gpu_bench
  //tests/conformance:conformance
  //tests/dtensor/device:cuda_probe
)
mapfile -t tests < <(bazel query "${flags[@]:0:2}" --noshow_progress \
  'attr(tags, "\bgpu\b", tests(//tests/...))' | sort)
((${#tests[@]})) || fail "bazel finds no tests with the tag gpu in //tests/..."

echo "building ${#tests[@]} tests, ${#programs[@]} programs and the CUDA plugin"
bazel build "${flags[@]}" "$plugin" "${programs[@]}" "${tests[@]}"
built=$(bazel info "${flags[@]}" bazel-bin 2>/dev/null)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/gpu_bundle
mkdir -p "$top"/{bin,lib/fallback,conformance}
copy() { install -m 755 -s "$1" "$2"; }
file_of() { echo "$built/$(tr : / <<<"${1#//}")"; }

# A test's name includes its folder: //tests/nn:x_test is bin/nn.x_test.
for label in "${programs[@]}"; do copy "$(file_of "$label")" "$top/bin/${label#*:}"; done
for label in "${tests[@]}"; do
  copy "$(file_of "$label")" "$top/bin/$(tr /: .. <<<"${label#//tests/}")"
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
  grep -E "$cuda" | sort -u >"$top/cuda_libraries"

install -m 755 tools/gpu_bundle_run.sh "$top/run.sh"
install -m 644 tests/bench/gpu_bench.py "$top"
install -m 644 LICENSE "$top/text"
install -m 644 tests/conformance/data/{cases.jsonl,tensors.safetensors} "$top/conformance"
# With "-dirty" if the working copy has changes.
commit=$(git -c safe.directory="$PWD" describe --always --dirty 2>/dev/null || echo unknown)
note=$(value note)
echo "commit $commit, nvcc $(value version) for" \
  "${DTENSOR_CUDA_ARCHS:-80-real,90}, host code for $march${note:+; $note}" \
  >"$top/built"

if [[ $out == *.tar.gz ]]; then
  tar -C "$work" -c gpu_bundle | gzip >"$out.part"
  mv "$out.part" "$out"
else
  cp -r "$top" "$out"
fi
cat "$top/built"
echo "$out: $(du -sh "$out" | cut -f 1), unpacked $(du -sh "$top" | cut -f 1)"
