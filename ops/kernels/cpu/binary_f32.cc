// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_BINARY_LOOPS(float, fn::By::kNone)
DT_BINARY_LOOPS(float, fn::By::kA)
DT_BINARY_LOOPS(float, fn::By::kB)
DT_BINARY_LOOPS(float, fn::By::kBoth)
DT_BINARY_LOOPS(float, fn::By::kAA)
DT_BINARY_LOOPS(float, fn::By::kAB)
DT_BINARY_LOOPS(float, fn::By::kBB)

}  // namespace dtensor::kernels::cpu
