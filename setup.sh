#!/bin/bash
# Installs what the build needs. See usage().
set -euo pipefail

# The compiler and Bazel (which resolves its own rules from the four after it),
# libraries, and what .ci/run uses. third_party/ describes the libraries.
packages=(
  g++
  git
  python3
  bazel-bootstrap
  bazel-platforms
  bazel-skylib
  bazel-rules-java
  bazel-rules-proto
  libbenchmark-dev
  libcli11-dev
  libdnnl-dev
  libeigen3-dev
  libfmt-dev
  libgmock-dev
  libgtest-dev
  libxxhash-dev
  nlohmann-json3-dev
  clang-format
  cmake
  make
  pkg-config
)

usage() {
  cat <<'TEXT'
usage: ./setup.sh [--help]

Installs the Debian 12 packages that the build needs. Does nothing when all of
them are there; otherwise it runs apt-get, as root or through sudo.
TEXT
}

for arg in "$@"; do
  case $arg in
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "setup.sh: unknown argument '$arg'" >&2
      usage >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: there is no apt here; install by hand: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup.sh: all ${#packages[@]} packages are installed; nothing to do"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: run this as root, or install sudo; missing: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup.sh: installing ${missing[*]}"
# env, because sudo passes no variables on.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
# Package lists that are old, or all there is on a machine without a network,
# may still do: let the installation be the judge.
"${apt[@]}" update </dev/null || echo "setup.sh: apt-get update failed; trying the lists that are here" >&2
"${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null
echo "setup.sh: done"
