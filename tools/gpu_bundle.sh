#!/bin/bash
# Packs what a GPU is tested and measured with. See usage().
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/gpu_bundle.sh [--march CPU] OUT

Builds the tests that use a GPU, the programs, the benchmark and
libdtensor_cuda.so, and packs them with the libraries that they need into OUT: a
folder that is not there yet, or a file whose name ends in .tar.gz. A machine
with a GPU needs its driver and CUDA's libraries to run it, and no Bazel, no
compiler and no packages:

  tar xzf OUT && gpu_bundle/run.sh

Needs nvcc here, and no GPU.

  --march CPU  what the host's code is compiled for, as g++ writes it (default
               x86-64-v3: processors since 2013; native: those like this one)

DTENSOR_CUDA_ARCHS=80-real,90 says for which GPUs, CUDA_HOME where the toolkit is.
TEXT
}

# fail WHY: with the status of bad input.
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
      (($# > 1)) || fail "--march names no CPU; write --march x86-64-v3"
      march=$2
      shift
      ;;
    -*) fail "there is no $1; see --help" ;;
    *)
      [[ ! $out ]] || fail "$1 is one file too many; write OUT once, here $out"
      out=$1
      ;;
  esac
  shift
done
[[ $out ]] || fail "where to? write a folder, or a file that ends in .tar.gz"
[[ $out == *.tar.gz || ! -e $out ]] ||
  fail "$out is there already; name a new folder, or remove it"
[[ -d $(dirname "$out") ]] || fail "there is no folder $(dirname "$out") for $out"
out=$(realpath "$out")
cd "$(dirname "$0")/.."

found=$(bash third_party/find_cuda.sh 2>&1) ||
  fail "no bundle without nvcc: $found; ./setup.sh --cuda brings one"
value() { sed -n "s/^$1=//p" <<<"$found"; }

# The toolkit that was found, whatever a .bazelrc says of it. Code for another
# CPU has a place of its own: the next build here finds what it left.
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
((${#tests[@]})) || fail "bazel finds no tests with the tag gpu"

echo "building ${#tests[@]} tests, ${#programs[@]} programs and the library of CUDA"
bazel build "${flags[@]}" "$plugin" "${programs[@]}" "${tests[@]}"
built=$(bazel info "${flags[@]}" bazel-bin 2>/dev/null)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/gpu_bundle
mkdir -p "$top"/{bin,lib/fallback,conformance}
copy() { install -m 755 -s "$1" "$2"; }
file_of() { echo "$built/$(tr : / <<<"${1#//}")"; }

# A test by its folder, too: //tests/nn:x_test is bin/nn.x_test.
for label in "${programs[@]}"; do copy "$(file_of "$label")" "$top/bin/${label#*:}"; done
for label in "${tests[@]}"; do
  copy "$(file_of "$label")" "$top/bin/$(tr /: .. <<<"${label#//tests/}")"
done
copy "$(file_of $plugin)" "$top/lib"

# What they need of this machine's libraries. Debian has no static fmt and
# oneDNN, so that these and what they need come along: the C++ library aside,
# for machines whose own is older. libc and CUDA are the other machine's.
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
# "-dirty" where the working copy has changes.
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
