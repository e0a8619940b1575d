#include "dtensor/ops/kernels/cpu/pointwise_loops.h"

namespace dtensor::kernels::cpu {

DT_BINARY_LOOPS(float, fn::By::kNone)
DT_BINARY_LOOPS(float, fn::By::kA)
DT_BINARY_LOOPS(float, fn::By::kB)
DT_BINARY_LOOPS(float, fn::By::kBoth)
DT_BINARY_LOOPS(float, fn::By::kAA)
DT_BINARY_LOOPS(float, fn::By::kAB)
DT_BINARY_LOOPS(float, fn::By::kBB)
DT_BINARY_LOOPS(float, fn::By::kAAA)
DT_BINARY_LOOPS(float, fn::By::kAAB)
DT_BINARY_LOOPS(float, fn::By::kABB)
DT_BINARY_LOOPS(float, fn::By::kBBB)

}  // namespace dtensor::kernels::cpu
