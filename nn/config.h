// The numbers that make a language model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>

#include "dtensor/placement/dtype.h"

namespace dtensor::nn {

struct ModelConfig {
  std::string name = "gpt";  // or "llama", "mixtral"
  int64_t layers = 4;
  int64_t hidden = 256;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: as many as heads. Not gpt.
  int64_t ffn = 0;  // 0: gpt 4 x hidden; others 8/3 x hidden, rounded up to a
                    // multiple of 8. Mixtral: of an expert
  // Mixtral alone.
  int64_t experts = 0;     // 0: 8
  int64_t top_k = 0;       // experts of a token; 0: 2, or all
  double router_loss = 0;  // what load_balancing_loss() is multiplied by
  int64_t seq = 128;       // the longest sequence
  int64_t vocab = 256;
  DType dtype = DType::kF32;
  double rope_theta = 10000;  // not gpt
  double norm_eps = 0;        // 0: gpt 1e-5; others 1e-6

  // Throws Error, a sentence with the values and what to write instead, unless
  // name is known, every size positive, hidden a multiple of heads, heads of
  // kv_heads, the head size even but for gpt, kv_heads not given for gpt,
  // experts and top_k for mixtral alone and fitting, and dtype a float.
  void validate() const;

  // With the defaults filled in. REQUIRE: validate() passes.
  int64_t head_dim() const { return hidden / heads; }
  int64_t kv() const { return kv_heads ? kv_heads : heads; }
  int64_t expert_count() const { return experts ? experts : 8; }
  int64_t chosen_experts() const {
    return top_k ? top_k : std::min<int64_t>(2, expert_count());
  }
  double eps() const {
    return norm_eps > 0 ? norm_eps : name == "gpt" ? 1e-5 : 1e-6;
  }
  int64_t ffn_size() const {
    if (ffn) return ffn;
    return name == "gpt" ? 4 * hidden : ((8 * hidden + 2) / 3 + 7) / 8 * 8;
  }
};

}  // namespace dtensor::nn
