// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_UNARY_LOOPS(float, 0)
DT_UNARY_LOOPS(float, 1)
DT_UNARY_LOOPS(float, 2)

}  // namespace dtensor::kernels::cpu
