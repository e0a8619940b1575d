// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(double, fn::By::kNone)
DT_BINARY_LAUNCHES(double, fn::By::kA)
DT_BINARY_LAUNCHES(double, fn::By::kB)
DT_BINARY_LAUNCHES(double, fn::By::kBoth)
