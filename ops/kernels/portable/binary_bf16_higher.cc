// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/portable/pointwise_launch.h"

DT_BINARY_LAUNCHES(bf16, fn::By::kAA)
DT_BINARY_LAUNCHES(bf16, fn::By::kAB)
DT_BINARY_LAUNCHES(bf16, fn::By::kBB)
DT_BINARY_LAUNCHES(bf16, fn::By::kAAA)
DT_BINARY_LAUNCHES(bf16, fn::By::kAAB)
DT_BINARY_LAUNCHES(bf16, fn::By::kABB)
DT_BINARY_LAUNCHES(bf16, fn::By::kBBB)
