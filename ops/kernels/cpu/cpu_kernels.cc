// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels. The files of this folder define those that are limited by
// arithmetic, and the element-wise ones; ../portable defines the others, once
// for all devices.
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor {

const Kernels& cpu_kernels() { return kernels::defined_kernels(); }

}  // namespace dtensor
