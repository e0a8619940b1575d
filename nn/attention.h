// Causal self-attention with grouped queries.
#pragma once
#include "dtensor/nn/linear.h"

namespace dtensor::nn {

struct AttentionConfig {
  int64_t hidden = 0, heads = 0, kv_heads = 0;
  bool bias = true;
  double rope_theta = 0;  // 0: no rotary embedding
};

// Parameters, with d the head size: q_proj [heads * d, hidden], k_proj and
// v_proj [kv_heads * d, hidden], o_proj [hidden, heads * d]. They may be split
// by heads (granule d) over any number of ranks; each rank computes its own
// query heads with the kv heads that they use.
class Attention : public Module {
 public:
  Attention(const Scope& at, const AttentionConfig&);
  // [b, s, hidden] -> [b, s, hidden].
  virtual DistTensor forward(const DistTensor& x) const;

 private:
  AttentionConfig config_;
  ContextParallel context_;  // from the plan, as is context_bytes_
  int64_t context_bytes_;
  Child<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

}  // namespace dtensor::nn
