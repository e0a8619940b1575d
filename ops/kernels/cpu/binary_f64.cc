// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_BINARY_LOOPS(double, fn::By::kNone)
DT_BINARY_LOOPS(double, fn::By::kA)
DT_BINARY_LOOPS(double, fn::By::kB)
DT_BINARY_LOOPS(double, fn::By::kBoth)
DT_BINARY_LOOPS(double, fn::By::kAA)
DT_BINARY_LOOPS(double, fn::By::kAB)
DT_BINARY_LOOPS(double, fn::By::kBB)
DT_BINARY_LOOPS(double, fn::By::kAAA)
DT_BINARY_LOOPS(double, fn::By::kAAB)
DT_BINARY_LOOPS(double, fn::By::kABB)
DT_BINARY_LOOPS(double, fn::By::kBBB)

}  // namespace dtensor::kernels::cpu
