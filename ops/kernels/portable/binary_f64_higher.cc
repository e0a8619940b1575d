// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(double, fn::By::kAA)
DT_BINARY_LAUNCHES(double, fn::By::kAB)
DT_BINARY_LAUNCHES(double, fn::By::kBB)
DT_BINARY_LAUNCHES(double, fn::By::kAAA)
DT_BINARY_LAUNCHES(double, fn::By::kAAB)
DT_BINARY_LAUNCHES(double, fn::By::kABB)
DT_BINARY_LAUNCHES(double, fn::By::kBBB)
