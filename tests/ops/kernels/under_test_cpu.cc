// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {

const Kernels& under_test() { return cpu_kernels(); }

int64_t vectors_and_more() { return 67; }

}  // namespace dtensor::kernels
