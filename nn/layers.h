// SPDX-License-Identifier: Apache-2.0
// The layers of which models are made.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/module.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/norm.h"

namespace dtensor::nn {

struct CacheLayer;
struct CacheTokens;

// y = x * weight^T + bias, with weight [out, in] as in PyTorch. A weight in
// Shard(0) is column-parallel. A weight in Shard(1) is row-parallel: y is then
// a partial sum, and the bias is added to one part. With Scope::int8_weights,
// the weight is i8 and has a parameter weight_scale [out]; see int8_linear().
class Linear : public Module {
 public:
  Linear(const Scope& at, int64_t in, int64_t out, bool bias = true);
  // Shares existing parameters of a float type (`bias` may be undefined), for a
  // class that replaces a Linear (Module::replace).
  Linear(const Scope& at, const DistTensor& weight, const DistTensor& bias);
  // x [..., in] -> [..., out].
  virtual DistTensor forward(const DistTensor& x) const;
  // Applies `then` to forward(x), in the same operator if the weight is not i8
  // and this is no derived class.
  DistTensor forward(const DistTensor& x, Activation then) const;
  const DistTensor& weight() const { return weight_; }
  const DistTensor& bias() const { return bias_; }  // undefined if none

 private:
  DistTensor weight_, bias_, scale_;
};

class Embedding : public Module {
 public:
  Embedding(const Scope& at, int64_t rows, int64_t hidden);
  // ids [...] -> [..., hidden].
  virtual DistTensor forward(const DistTensor& ids) const;
  // Rows 0 to n - 1, [n, hidden], for position embeddings.
  virtual DistTensor first(int64_t n) const;
  // A tied head: x [b, s, hidden] times the transpose of `table` [rows, hidden]
  // gives [b, s, rows]. `table` is this module's table, or a copy of it on the
  // mesh of x.
  virtual DistTensor attend(const DistTensor& x, const DistTensor& table) const;
  const DistTensor& table() const { return weight_; }

 private:
  DistTensor weight_;
};

// A norm over the last dimension, x [..., hidden]. Blocks call normed(), so a
// class that replaces a norm (Module::replace) overrides normed().
class Norm : public Module {
 public:
  using Module::Module;
  DistTensor forward(const DistTensor& x) const { return normed(x, {}).y; }
  // Returns the sum x + residual and its norm. If residual is undefined, it
  // returns x and its norm, with x in the layout that the norm used (partial
  // sums already reduced).
  virtual Normed normed(const DistTensor& x,
                        const DistTensor& residual) const = 0;
};

class LayerNorm : public Norm {
 public:
  LayerNorm(const Scope& at, int64_t hidden, double eps = 1e-5);
  Normed normed(const DistTensor& x, const DistTensor& residual) const override;

 private:
  DistTensor weight_, bias_;
  double eps_;
};

class RMSNorm : public Norm {
 public:
  // If plus_one, multiplies the normalized x by 1 + weight, as in Gemma (added
  // in the weight's type). The weight then begins at 0.
  RMSNorm(const Scope& at, int64_t hidden, double eps = 1e-6,
          bool plus_one = false);
  Normed normed(const DistTensor& x, const DistTensor& residual) const override;

 private:
  DistTensor weight_;
  double eps_;
  bool plus_one_;
};

// ---- Feed-forward blocks ----

// How a router distributed a batch, for the load-balancing loss. Both tensors
// are [experts] in f32 (f64 for f64).
struct RouterLoad {
  // The share of the tokens that chose each expert; sums to TopKRouter's k.
  DistTensor chosen;
  DistTensor probability;  // the router's softmax, averaged over tokens
};

// The sum of the loads of two layers.
RouterLoad operator+(const RouterLoad&, const RouterLoad&);

struct Mixed {
  DistTensor y;  // in the shape of the input
  RouterLoad load;
};

// Blocks call mixed(). The load is undefined if the layer has no router.
class FeedForward : public Module {
 public:
  using Module::Module;
  virtual Mixed mixed(const DistTensor& x) const = 0;
};

// c_proj(act(c_fc(x))), [..., hidden] -> [..., hidden]. GPT-2's activation is
// gelu, approximated with tanh.
class MLP : public FeedForward {
 public:
  MLP(const Scope& at, int64_t hidden, int64_t ffn, bool bias = true,
      Act activation = Act::kGeluTanh);
  virtual DistTensor forward(const DistTensor& x) const;
  Mixed mixed(const DistTensor& x) const final { return {forward(x), {}}; }

 private:
  Child<Linear> c_fc_, c_proj_;
  Act activation_;
};

// down_proj(act(gate_proj(x)) * up_proj(x)), with x [..., hidden]. Llama: silu.
class GatedMLP : public FeedForward {
 public:
  GatedMLP(const Scope& at, int64_t hidden, int64_t ffn, bool bias = false,
           Act activation = Act::kSilu);
  virtual DistTensor forward(const DistTensor& x) const;
  Mixed mixed(const DistTensor& x) const final { return {forward(x), {}}; }

 private:
  Child<Linear> gate_proj_, up_proj_, down_proj_;
  Act activation_;
};

// ---- Self-attention with grouped queries ----

struct AttentionConfig {
  int64_t hidden = 0, heads = 0, kv_heads = 0;
  int64_t head_size = 0;  // 0: hidden / heads
  bool bias = true;       // of q_proj, k_proj and v_proj
  bool out_bias = true;   // of o_proj
  bool rotary = false;    // queries and keys are rotated, as `rope` says
  Rope rope = {};
  HeadNorm norm = HeadNorm::kNone;  // q_norm and k_norm
  double norm_eps = 1e-6;
  bool causal = true;
  // As in AttentionOptions. If 0: its default scale, no cap, no window.
  double scale = 0, soft_cap = 0;
  int64_t window = 0;
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
  // forward() for the tokens x [1, t, hidden] of a step (kv_cache.h). Caches
  // their keys and values. Each token attends to its own text up to itself.
  virtual DistTensor cached(const DistTensor& x, const CacheTokens&,
                            const CacheLayer&) const;
  // The config with head_size filled in: it is never 0.
  const AttentionConfig& config() const { return config_; }
  // How query heads are split.
  Split head_split() const;

 private:
  struct Projected {
    DistTensor q, k, v;  // [b, s, heads, d], not yet rotated
  };
  Projected project(const DistTensor& x) const;

  AttentionConfig config_;
  ContextParallel context_;  // from the plan, as is context_bytes_
  int64_t context_bytes_;
  Child<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
  Child<RMSNorm> q_norm_, k_norm_;  // empty if there is no norm
};

// ---- Experts, as in Mixtral (Jiang et al., arXiv 2401.04088) ----

// The experts that each token goes to, and their weights.
struct Routed {
  DistTensor ids, weights;  // [tokens, k] or [b, s, k]
  RouterLoad load;
};

// Computes softmax(x * weight^T) over all experts, takes the k largest as the
// weights of their experts and, if `normalize`, scales these to sum to one.
// Parameter: weight [experts, hidden].
class TopKRouter : public Module {
 public:
  // Throws Error unless 1 <= k <= experts.
  TopKRouter(const Scope& at, int64_t hidden, int64_t experts, int64_t k,
             bool normalize = true);
  virtual Routed forward(const DistTensor& x) const;  // x [..., hidden]

 private:
  DistTensor weight_;
  int64_t k_;
  bool normalize_;
};

// Parameters: gate_proj and up_proj [experts, ffn, hidden], down_proj [experts,
// hidden, ffn]; see ops/experts.h. If they are split over the first dimension,
// tokens are sent to the ranks of their experts.
class Experts : public Module {
 public:
  Experts(const Scope& at, int64_t hidden, int64_t ffn, int64_t experts);
  // x [tokens, hidden], ids and weights [tokens, k] -> y; or b, s for tokens.
  virtual DistTensor forward(const DistTensor& x, const DistTensor& ids,
                             const DistTensor& weights) const;

 private:
  DistTensor gate_proj_, up_proj_, down_proj_;
};

// Submodules: gate (the router) and experts.
class MixtureOfExperts : public FeedForward {
 public:
  MixtureOfExperts(const Scope& at, int64_t hidden, int64_t ffn,
                   int64_t experts, int64_t k, bool normalize = true);
  virtual Mixed forward(const DistTensor& x) const;  // x [b, s, hidden]
  Mixed mixed(const DistTensor& x) const final { return forward(x); }

 private:
  Child<TopKRouter> gate_;
  Child<Experts> experts_;
};

// The auxiliary loss of the Switch Transformer (Fedus et al., arXiv 2101.03961,
// equation 4), as Hugging Face transformers computes it: E * sum_e(chosen[e] *
// probability[e]) for E experts, with the average load sum / layers. This
// scalar is TopKRouter's k if all experts are used equally.
DistTensor load_balancing_loss(const RouterLoad& sum, int64_t layers);

}  // namespace dtensor::nn
