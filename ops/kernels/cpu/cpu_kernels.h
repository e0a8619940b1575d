// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels. The files of this folder define those that are limited by
// arithmetic, and the element-wise ones; ../portable defines the others, once
// for all devices.
#pragma once
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {

using CpuKernels = PortableKernels;

}  // namespace dtensor::kernels
