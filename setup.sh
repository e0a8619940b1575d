#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs everything that the build needs. See usage().
set -euo pipefail

# The compiler; Bazel, and the four packages from which it resolves its own
# rules; libraries; and programs that .ci/run uses. third_party/ describes the
# libraries.
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
  libcpp-httplib-dev
  libdnnl-dev
  libeigen3-dev
  libfmt-dev
  libgmock-dev
  libgtest-dev
  libopenmpi-dev
  libpcre2-dev
  libutf8proc-dev
  libxxhash-dev
  nlohmann-json3-dev
  openmpi-bin
  clang-format
  cmake
  make
  pkg-config
)

# For --browser.
browser_packages=(
  chromium
  chromium-driver
  fonts-dejavu-core
  python3-selenium
)

# For --cuda: the newest CUDA 13.0, with the newest cuDNN 9 and NCCL 2 for it.
# Debian 12 packages 11.8, whose nvcc does not support C++20.
wheels=(
  nvidia-cublas==13.1.0.3
  nvidia-cuda-cccl==13.0.85
  nvidia-cuda-crt==13.0.88
  nvidia-cuda-nvcc==13.0.88
  nvidia-cuda-nvrtc==13.0.88
  nvidia-cuda-runtime==13.0.96
  nvidia-cudnn-cu13==9.19.0.56
  nvidia-nccl-cu13==2.28.9
  nvidia-nvvm==13.0.88
)
# Headers only, for any version of these.
frontend=nvidia-cudnn-frontend==1.32.0
# For any version, too; there are no wheels of 13.0's.
disassembler=(nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37)
find_cuda=$(dirname "$0")/third_party/find_cuda.sh
wheels_folder=${XDG_DATA_HOME:-${HOME:-}/.local/share}/dtensor/cuda

usage() {
  cat <<TEXT
usage: ./setup.sh [--browser] [--cuda] [--help]

Installs the Debian 12 packages that the build needs. Does nothing if all are
installed; otherwise it runs apt-get, as root or through sudo.

  --browser  Also installs Chromium and Selenium, with which //tests/browser
             tests the pages of --html; without them, these tests are skipped
  --cuda     Also installs the CUDA toolkit with cuDNN and NCCL, if the build
             would find none: 1.2 GB of Python wheels from PyPI, which take
             1.7 GB in $wheels_folder;
             the headers of cudnn-frontend; and cuobjdump with nvdisasm, for
             //tests/cuda:sass_test
TEXT
}

cuda= toolkit=
for arg in "$@"; do
  case $arg in
    --browser) packages+=("${browser_packages[@]}") ;;
    --cuda) cuda=1 ;;
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

install_packages() {
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "setup.sh: run this as root, or install sudo; missing: ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi

  echo "setup.sh: installing ${missing[*]}"
  # env, because sudo does not pass variables on.
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
  # Old package lists, or those of a machine without a network, may still do. If
  # not, the installation fails.
  "${apt[@]}" update </dev/null || echo "setup.sh: apt-get update failed; trying the package lists that are here" >&2
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null
  echo "setup.sh: done"
}

# fetch FOLDER WHEEL...: unpacks the wheels into FOLDER/wheels.
fetch() {
  echo "setup.sh: installing ${*:2}"
  rm -rf "$1"
  /usr/bin/python3 -m venv "$1/venv"
  "$1/venv/bin/pip" install -q --no-cache-dir --no-deps \
    --disable-pip-version-check --target "$1/wheels" "${@:2}"
}

# The wheels have one folder each for CUDA, cuDNN and NCCL. They are merged into
# one folder, like a toolkit, so that cuDNN finds the libraries that it loads.
install_cuda() {
  local work=$wheels_folder.new
  fetch "$work" "${wheels[@]}"
  cp -al "$work"/wheels/nvidia/{cu13,cudnn,nccl}/. "$work"
  rm -rf "$work/venv" "$work/wheels" "$wheels_folder"
  mv "$work" "$wheels_folder"
  "$find_cuda" >/dev/null
  echo "setup.sh: CUDA is in $wheels_folder"
}

# install_part NAME FOLDER WHEEL...: installs the wheels' FOLDER as part NAME,
# where find_cuda.sh looks for it.
install_part() {
  local to=${wheels_folder%/*}/$1
  fetch "$to.new" "${@:3}"
  mv "$to.new/wheels/$2" "$to.new"
  rm -rf "$to.new/venv" "$to.new/wheels" "$to"
  mv "$to.new" "$to"
  echo "setup.sh: $1 is in $to"
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup.sh: apt is missing; install these packages by hand: ${packages[*]}" >&2
  exit 1
fi

if [[ $cuda ]]; then
  if found=$("$find_cuda" 2>&1); then
    echo "setup.sh: $(sed -n 's/^nvcc=//p' <<<"$found") is installed"
    [[ $found == *note=* || $found != *cuobjdump=* ]] || cuda=
  elif [[ ${CUDA_HOME:-} ]]; then
    echo "setup.sh: $found; unset CUDA_HOME to use another toolkit" >&2
    exit 1
  else
    echo "setup.sh: $found"
    toolkit=1
  fi
  [[ ! $cuda ]] || packages+=(python3-venv)
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "setup.sh: all ${#packages[@]} packages are installed; nothing to do"
else
  install_packages
fi
[[ ! $toolkit ]] || install_cuda
if [[ $cuda ]]; then
  found=$("$find_cuda")
  [[ $found != *note=* ]] || install_part cudnn-frontend include "$frontend"
  [[ $found == *cuobjdump=* ]] ||
    install_part cuda-disassembler nvidia/cu13/bin "${disassembler[@]}"
fi
