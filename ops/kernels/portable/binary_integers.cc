// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(int32_t, fn::By::kNone)
DT_BINARY_LAUNCHES(int64_t, fn::By::kNone)
DT_BINARY_LAUNCHES(uint8_t, fn::By::kNone)
