#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(bf16, fn::By::kAA)
DT_BINARY_LAUNCHES(bf16, fn::By::kAB)
DT_BINARY_LAUNCHES(bf16, fn::By::kBB)
