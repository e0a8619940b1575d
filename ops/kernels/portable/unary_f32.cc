// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_UNARY_LAUNCHES(float, 0)
DT_UNARY_LAUNCHES(float, 1)
