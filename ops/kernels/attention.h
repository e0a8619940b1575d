// SPDX-License-Identifier: Apache-2.0
// Attention.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The operands of attention: out = softmax(scores + mask) v for each batch and
// query head, where the scores are scale * q k^T, limited by soft_cap. q and
// out are [b, hq, s, d]; k and v are [b, hkv, t, d]. Query head h uses head
// kv_head[h] of k and v (h * hkv / hq if `kv_head` is empty). A query that
// attends to no key gets zeros, and an lse of -inf. Takes floats.
struct Attention {
  DType type = DType::kF32;
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  HeadsIn q = {}, k = {}, v = {};
  std::span<const int> kv_head = {};
  double scale = 1;
  // If not 0, a score s becomes soft_cap * tanh(s / soft_cap).
  double soft_cap = 0;
  // If `causal`, query i attends only to keys j <= i + query_offset.
  bool causal = false;
  int64_t query_offset = 0;
  // If not 0, query i attends to none of the keys j <= i + query_offset -
  // window. REQUIRES: `causal`.
  int64_t window = 0;
  // The mask [b, hq, s, t], with any strides; none if it has no data. Bools say
  // whether a query may attend; numbers of q's type are added to the scores.
  HeadsIn mask = {};
  bool mask_is_bool = false;
  // Whether sums are those that docs/reproducible.md defines, on the CPU. Then
  // key 0 is key first_key of its sequence.
  bool by_blocks = false;
  int64_t first_key = 0;
};

// Writes out, and lse [b, hq, s], contiguous, of the type `stat`: the log of
// each query's sum of exp(score). Scratch memory does not grow with s * t; on
// the CPU, it is for one block of queries and one head of k and v.
struct AttentionForward {
  Attention of;
  HeadsOut out;
  void* lse = nullptr;
};

// Overwrites dq, dk and dv with the gradients of q, k and v for the cotangent
// dout of out. `out` and `lse` are the results of AttentionForward.
struct AttentionBackward {
  Attention of;
  HeadsIn out = {}, dout = {};
  const void* lse = nullptr;
  HeadsOut dq = {}, dk = {}, dv = {};
};

}  // namespace dtensor::kernels
