// SPDX-License-Identifier: Apache-2.0
// Second and third derivatives.
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_UNARY_LAUNCHES(float, 2)
DT_UNARY_LAUNCHES(float, 3)
DT_UNARY_LAUNCHES(double, 2)
DT_UNARY_LAUNCHES(double, 3)
DT_UNARY_LAUNCHES(bf16, 2)
DT_UNARY_LAUNCHES(bf16, 3)
DT_UNARY_LAUNCHES(f16, 2)
DT_UNARY_LAUNCHES(f16, 3)
