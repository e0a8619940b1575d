// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_UNARY_LOOPS(double, 0)
DT_UNARY_LOOPS(double, 1)
DT_UNARY_LOOPS(double, 2)
DT_UNARY_LOOPS(double, 3)

}  // namespace dtensor::kernels::cpu
