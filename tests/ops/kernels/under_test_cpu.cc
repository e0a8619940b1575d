// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {

const Kernels& under_test() { return cpu_kernels(); }

}  // namespace dtensor::kernels
