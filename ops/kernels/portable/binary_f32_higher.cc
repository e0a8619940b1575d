// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(float, fn::By::kAA)
DT_BINARY_LAUNCHES(float, fn::By::kAB)
DT_BINARY_LAUNCHES(float, fn::By::kBB)
DT_BINARY_LAUNCHES(float, fn::By::kAAA)
DT_BINARY_LAUNCHES(float, fn::By::kAAB)
DT_BINARY_LAUNCHES(float, fn::By::kABB)
DT_BINARY_LAUNCHES(float, fn::By::kBBB)
