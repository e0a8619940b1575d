// SPDX-License-Identifier: Apache-2.0
// Attention with defined bits: the result of a query is a function of the query
// and of the keys that it sees alone. It does not depend on other queries, on
// how keys are stored, or on the width of the CPU's vectors. Private to
// ops/kernels.
//
// The keys of a sequence are in blocks of kBlockKeys, counted from key 0. Each
// block has its own maximum, rounded up to a power of two, so that two blocks
// are added without any rounding but that of the sums. The blocks are added as
// a tree that further keys do not change. docs/reproducible.md is the whole
// definition.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/paged_attention.h"

namespace dtensor::kernels::cpu {

inline constexpr int64_t kBlockKeys = 64;

// Calls with `by_blocks`.
void block_attention(const AttentionForward&);
void block_attention(const PagedAttention&);

}  // namespace dtensor::kernels::cpu
