// SPDX-License-Identifier: Apache-2.0
// The sizes and constants that define a language model.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/ops/attention.h"
#include "dtensor/placement/dtype.h"

namespace dtensor::nn {

// The activation of a feed-forward layer: gelu approximated with tanh, exact
// gelu, or silu.
enum class Act : uint8_t { kGeluTanh, kGelu, kSilu };

// RMS norms of queries and keys before they are rotated: of each head, or of
// all numbers of a token together.
enum class HeadNorm : uint8_t { kNone, kEachHead, kAllHeads };

struct ModelConfig {
  std::string name = "gpt";  // of an architecture (architecture.h)
  int64_t layers = 4;
  int64_t hidden = 256;
  int64_t heads = 8;
  int64_t kv_heads = 0;   // 0: as many as heads; see Architecture::grouped
  int64_t head_size = 0;  // of queries, keys and values; 0: hidden / heads
  int64_t ffn = 0;  // 0: 4 x hidden for a plain MLP; else 8/3 x hidden, rounded
                    // up to a multiple of 8. With experts, each has this size.
  // For architectures with experts only.
  int64_t experts = 0;     // 0: 8
  int64_t top_k = 0;       // experts per token; 0: 2, or 1 if there is only one
  bool norm_top_k = true;  // whether the weights of these experts sum to one
  double router_loss = 0;  // the weight of load_balancing_loss() in the loss
  int64_t seq = 128;       // the longest sequence, in tokens
  int64_t vocab = 256;
  DType dtype = DType::kF32;
  Rope rope = {};       // if the architecture rotates queries and keys
  double norm_eps = 0;  // 0: the architecture's
  int64_t window = 0;   // AttentionOptions::window; 0: no sliding window
  // By layer: whether it has the window. If empty, all layers have it.
  std::vector<bool> windowed = {};
  // Attention multiplies scores by 1 / sqrt(query_scalar). 0: head_dim().
  int64_t query_scalar = 0;
  double attention_soft_cap = 0;  // AttentionOptions::soft_cap
  // If not 0, a logit x becomes logit_soft_cap * tanh(x / logit_soft_cap).
  double logit_soft_cap = 0;
  // Biases in addition to those of the architecture.
  bool attention_bias = false;  // of all four projections of attention
  bool mlp_bias = false;
  // Whether the head's matrix is the embedding table; the architecture's choice
  // if not set.
  std::optional<bool> tied = {};
  // Whether attention and the MLP of a block read the same input; the
  // architecture's choice if not set.
  std::optional<bool> parallel = {};
  // Tokens that begin, pad and end a text. No layer uses them; they are here to
  // be written to config.json.
  std::optional<int64_t> bos = {}, pad = {};
  std::vector<int64_t> eos = {};

  // Throws Error, with the values and a fix, unless: the name is known; all
  // sizes are in range (positive, or 0 for a default); hidden is a multiple of
  // heads (or head_size is set), and heads of kv_heads; head_dim() is even if
  // heads are rotated; rope.dims is even and at most head_dim(); kv_heads is
  // set for `grouped` architectures only; experts, top_k and router_loss are
  // set for architectures with experts only and are in range; windowed has a
  // value for each layer or none; dtype is a float type; and window,
  // rope.theta, query_scalar and norm_eps are in range.
  void validate() const;

  // The members with the defaults filled in. REQUIRES: validate() passes.
  int64_t head_dim() const { return head_size ? head_size : hidden / heads; }
  int64_t kv() const { return kv_heads ? kv_heads : heads; }
  int64_t expert_count() const { return experts ? experts : 8; }
  int64_t chosen_experts() const {
    return top_k ? top_k : std::min<int64_t>(2, expert_count());
  }
  double eps() const;
  int64_t ffn_size() const;
  bool is_tied() const;
  bool is_parallel() const;
  int64_t window_of(int64_t layer) const {
    const bool has = windowed.empty() || windowed[static_cast<size_t>(layer)];
    return has ? window : 0;
  }
};

}  // namespace dtensor::nn
