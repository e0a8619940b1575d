// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(float, fn::By::kNone)
DT_BINARY_LAUNCHES(float, fn::By::kA)
DT_BINARY_LAUNCHES(float, fn::By::kB)
DT_BINARY_LAUNCHES(float, fn::By::kBoth)
