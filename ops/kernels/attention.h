// SPDX-License-Identifier: Apache-2.0
// Attention.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The operands of attention: out = softmax(scores + mask) v for each batch and
// query head, where the scores are scale q k^T, limited by soft_cap. q and out
// are [b, hq, s, d]; k and v are [b, hkv, t, d]. Query head h uses the local
// head kv_head[h] (if empty, h * hkv / hq). A query that may not attend to any
// key gets zeros, and lse -inf. Floats.
struct Attention {
  DType type = DType::kF32;
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  HeadsIn q = {}, k = {}, v = {};
  std::span<const int> kv_head = {};
  double scale = 1;
  // If not 0, a score s becomes soft_cap tanh(s / soft_cap).
  double soft_cap = 0;
  // Query i attends to keys j <= i + query_offset.
  bool causal = false;
  int64_t query_offset = 0;
  // If not 0, and causal, only to those with j > i + query_offset - window.
  int64_t window = 0;
  // Without data, or [b, hq, s, t], with any strides: bools, true if a query
  // may attend; or numbers of q's type to add.
  HeadsIn mask = {};
  bool mask_is_bool = false;
};

// Writes out, and lse, the log of each query's sum of exponentials: `stat`,
// contiguous [b, hq, s]. The scratch memory is at most that for one block of
// queries and one head of k and v.
struct AttentionForward {
  Attention of;
  HeadsOut out;
  void* lse = nullptr;
};

// dq, dk and dv are overwritten.
struct AttentionBackward {
  Attention of;
  HeadsIn out = {}, dout = {};
  const void* lse = nullptr;
  HeadsOut dq = {}, dk = {}, dv = {};
};

}  // namespace dtensor::kernels
