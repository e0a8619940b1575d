#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests third_party/find_cuda.sh, and what setup.sh --cuda makes of it, on
# toolkits that are files alone.
set -u

root=$PWD
. tests/want.sh

# toolkit FOLDER VERSION: all that there is to find, in one folder.
toolkit() {
  mkdir -p "$1"/{bin,include/nv,lib64}
  printf '#!/bin/bash\necho "Cuda compilation tools, release x, V%s"\n' "$2" >"$1/bin/nvcc"
  touch "$1"/bin/{cuobjdump,nvdisasm}
  chmod +x "$1"/bin/*
  touch "$1"/include/{cuda_runtime.h,nv/target,cublasLt.h,cudnn.h,nccl.h,cudnn_frontend.h} \
    "$1"/lib64/{libcublasLt.so.13,libcudnn.so.9,libnccl.so.2,libnvrtc.so.13,libcudart_static.a}
}
# As when nothing says where it is, but for PATH: that is the first argument.
find_cuda() {
  env -u CUDA_PATH HOME="$PWD" XDG_DATA_HOME="$PWD/data" PATH="$1" \
    bash "$root/third_party/find_cuda.sh"
}
at() { CUDA_HOME=$PWD/$1 find_cuda /usr/bin:/bin; }

toolkit whole 13.0.88
want whole 0 "^nvcc=$PWD/whole/bin/nvcc$" at whole
want version 0 '^version=13.0.88$' at whole
want library 0 "^library=$PWD/whole/lib64/libcudnn.so.9$" at whole
at whole | grep -q note && { echo "a note of what is there"; failures=$((failures + 1)); }

# cuobjdump, with nvdisasm: of the toolkit, then on PATH, then setup.sh's.
want cuobjdump 0 "^cuobjdump=$PWD/whole/bin/cuobjdump$" at whole
toolkit half 13.0.88
rm half/bin/nvdisasm
at half | grep -q cuobjdump && { echo "cuobjdump without nvdisasm"; failures=$((failures + 1)); }
mkdir -p data/dtensor
cp -r whole data/dtensor/cuda-disassembler
want cuobjdump-of-setup 0 "^cuobjdump=$PWD/data/dtensor/cuda-disassembler/bin/cuobjdump$" at half
CUDA_HOME=$PWD/half want cuobjdump-on-path 0 "^cuobjdump=$PWD/whole/bin/cuobjdump$" \
  find_cuda "$PWD/whole/bin:/usr/bin:/bin"
rm -r data

want none 1 "^no nvcc in CUDA_HOME=$PWD/none$" at none
want no 1 '^no nvcc in CUDA_HOME=no$' env CUDA_HOME=no bash "$root/third_party/find_cuda.sh"
toolkit old 11.8.89
want old 1 'old/bin/nvcc is 11.8.89; C\+\+20 needs 12.0 or newer$' at old
toolkit broken 13.0.88
echo 'exit 1' >broken/bin/nvcc
want broken 1 'broken/bin/nvcc does not run$' at broken
toolkit no_blas 13.0.88
rm no_blas/lib64/libcublasLt.so.13
want no-library 1 'CUDA 13.0.88 in .*/no_blas has no libcublasLt.so.\*$' at no_blas
toolkit no_nccl 13.0.88
rm no_nccl/include/nccl.h
want no-header 1 'CUDA 13.0.88 in .*/no_nccl has no nccl.h$' at no_nccl
toolkit no_frontend 13.0.88
rm no_frontend/include/cudnn_frontend.h
want note 0 '^note=attention without cuDNN: no cudnn_frontend.h$' at no_frontend

# Python's wheels: cuDNN and NCCL beside the toolkit.
toolkit wheels/cu13 13.0.88
for part in cudnn nccl; do
  mkdir -p wheels/$part/{include,lib}
  mv wheels/cu13/include/$part.h wheels/$part/include
  mv wheels/cu13/lib64/lib$part.so.* wheels/$part/lib
done
want wheels 0 'wheels/cu13/../cudnn/lib/libcudnn.so.9$' at wheels/cu13
# Finds the toolkit that setup.sh has installed, and the nvcc on PATH before it
# (unless there is one in /usr/local/cuda, which comes first).
if [[ ! -e /usr/local/cuda ]]; then
  toolkit data/dtensor/cuda 13.0.88
  want installed 0 "^nvcc=$PWD/data/dtensor/cuda/bin/nvcc$" find_cuda /usr/bin:/bin
  want on-path 0 "^nvcc=$PWD/whole/bin/nvcc$" find_cuda "$PWD/whole/bin:/usr/bin:/bin"
fi

# setup.sh, where Debian has all packages.
mkdir tools
printf '#!/bin/bash\necho installed\n' >tools/dpkg-query
printf '#!/bin/bash\necho "apt-get was called: $*"\nexit 9\n' >tools/apt-get
chmod +x tools/*
setup() {
  CUDA_HOME=$PWD/$1 HOME=$PWD XDG_DATA_HOME=$PWD/data PATH=$PWD/tools:/usr/bin:/bin \
    bash "$root/setup.sh" --cuda
}
want setup 0 "^setup.sh: $PWD/whole/bin/nvcc is installed$" setup whole
want setup-nothing 0 'are installed; nothing to do$' setup whole
want setup-broken 1 '^setup.sh: .*broken/bin/nvcc does not run; unset CUDA_HOME to use another toolkit$' \
  setup broken

exit $((failures > 0))
