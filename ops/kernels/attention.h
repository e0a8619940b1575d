// Attention.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// out = softmax(scale q k^T + mask) v for each batch and query head. q and out
// are [b, hq, s, d]; k and v are [b, hkv, t, d]. Strides are in that order, and
// the last one is 1. Query head h uses the local head kv_head[h], an array in
// host memory (null: h * hkv / hq). A query that may not attend to any key gets
// zeros, and lse -inf.
struct Attention {
  int64_t b = 0, hq = 0, hkv = 0, s = 0, t = 0, d = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t q_strides[4] = {}, k_strides[4] = {}, v_strides[4] = {};
  const int* kv_head = nullptr;
  double scale = 1;
  // Query i attends to keys j <= i + query_offset.
  bool causal = false;
  int64_t query_offset = 0;
  // Null, or [b, hq, s, t] with strides (0 to broadcast): bools, true if a
  // query may attend; or numbers of q's type to add.
  const void* mask = nullptr;
  bool mask_is_bool = false;
  int64_t mask_strides[4] = {};
};

// dq, dk and dv are overwritten. They have strides of their own; the last is 1.
struct AttentionGrad {
  const void* out = nullptr;
  int64_t out_strides[4] = {};
  const void* dout = nullptr;
  int64_t dout_strides[4] = {};
  const void* lse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t dq_strides[4] = {}, dk_strides[4] = {}, dv_strides[4] = {};
};

class AttentionKernels {
 public:
  virtual ~AttentionKernels() = default;
  // Also writes lse, the log of each query's sum of exponentials: `stat`,
  // contiguous [b, hq, s]. Floats. The scratch memory is at most that for one
  // block of queries and one head of k and v.
  virtual void attention(Stream, DType, const Attention&, void* out,
                         const int64_t out_strides[4], void* lse) const = 0;
  virtual void attention_backward(Stream, DType, const Attention&,
                                  const AttentionGrad&) const = 0;
};

}  // namespace dtensor::kernels
