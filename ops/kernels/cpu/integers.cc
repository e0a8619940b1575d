// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_UNARY_LOOPS(int32_t, 0)
DT_UNARY_LOOPS(int64_t, 0)
DT_UNARY_LOOPS(uint8_t, 0)
DT_BINARY_LOOPS(int32_t, fn::By::kNone)
DT_BINARY_LOOPS(int64_t, fn::By::kNone)
DT_BINARY_LOOPS(uint8_t, fn::By::kNone)

}  // namespace dtensor::kernels::cpu
