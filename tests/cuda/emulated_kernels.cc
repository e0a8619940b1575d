// SPDX-License-Identifier: Apache-2.0
// Replaces cuda_kernels.cc, without the libraries for products and attention,
// which are not emulated.
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {

const Kernels& cuda_kernels() { return kernels::defined_kernels(); }

}  // namespace dtensor
