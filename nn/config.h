// The sizes and constants that define a language model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "dtensor/placement/dtype.h"

namespace dtensor::nn {

struct ModelConfig {
  std::string name = "gpt";  // of an architecture (architecture.h)
  int64_t layers = 4;
  int64_t hidden = 256;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: the same as heads. Not for gpt.
  int64_t ffn = 0;  // 0: 4 x hidden for gpt; else 8/3 x hidden, rounded up to
                    // a multiple of 8. For mixtral, the size of one expert.
  // For mixtral only.
  int64_t experts = 0;     // 0: 8
  int64_t top_k = 0;       // experts per token; 0: 2, or 1 if there is only one
  double router_loss = 0;  // the weight of load_balancing_loss() in the loss
  int64_t seq = 128;       // the longest sequence, in tokens
  int64_t vocab = 256;
  DType dtype = DType::kF32;
  double rope_theta = 10000;  // not for gpt
  double norm_eps = 0;        // 0: 1e-5 for gpt, else 1e-6

  // Throws Error, with the values and a fix, unless: the name is known; all
  // sizes are positive; hidden is a multiple of heads, and heads of kv_heads;
  // the head size is even (except for gpt); kv_heads is not set for gpt;
  // experts, top_k and router_loss are set for mixtral only and are in range;
  // and dtype is a float type.
  void validate() const;

  // With the defaults filled in. REQUIRES: validate() passes.
  int64_t head_dim() const { return hidden / heads; }
  int64_t kv() const { return kv_heads ? kv_heads : heads; }
  int64_t expert_count() const { return experts ? experts : 8; }
  int64_t chosen_experts() const {
    return top_k ? top_k : std::min<int64_t>(2, expert_count());
  }
  double eps() const;
  int64_t ffn_size() const;
};

}  // namespace dtensor::nn
