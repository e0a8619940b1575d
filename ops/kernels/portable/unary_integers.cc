// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_UNARY_LAUNCHES(int32_t, 0)
DT_UNARY_LAUNCHES(int64_t, 0)
DT_UNARY_LAUNCHES(uint8_t, 0)
