// A mixture of experts in the place of a feed-forward layer, as in Mixtral
// (Jiang et al., arXiv 2401.04088).
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::nn {

// What a router did with a batch, for the loss that balances it; [experts]
// each, in f32 (f64 for f64).
struct RouterLoad {
  DistTensor chosen;  // the share of the tokens that chose it; they sum to k
  DistTensor probability;  // the mean over the tokens
};

// Of two layers together.
RouterLoad operator+(const RouterLoad&, const RouterLoad&);

// Which experts a token goes to, and with what weights.
struct Routed {
  DistTensor ids, weights;  // [tokens, k]
  RouterLoad load;
};

// softmax(x W^T) of all experts, of which the k largest count, their weights
// scaled to sum to one. weight [experts, hidden].
class TopKRouter : public Module {
 public:
  // Throws Error unless 1 <= k <= experts.
  TopKRouter(const Scope& at, int64_t hidden, int64_t experts, int64_t k);
  virtual Routed forward(const DistTensor& x) const;  // [tokens, hidden]

 private:
  DistTensor weight_;
  int64_t k_;
};

// gate_proj and up_proj [experts, ffn, hidden], down_proj [experts, hidden,
// ffn]; see ops/experts.h. Split over the first dimension, tokens travel.
class Experts : public Module {
 public:
  Experts(const Scope& at, int64_t hidden, int64_t ffn, int64_t experts);
  virtual DistTensor forward(const DistTensor& x, const DistTensor& ids,
                             const DistTensor& weights) const;

 private:
  DistTensor gate_proj_, up_proj_, down_proj_;
};

struct Mixed {
  DistTensor y;
  RouterLoad load;
};

// gate (the router) and experts.
class MixtureOfExperts : public Module {
 public:
  MixtureOfExperts(const Scope& at, int64_t hidden, int64_t ffn,
                   int64_t experts, int64_t k);
  virtual Mixed forward(const DistTensor& x) const;  // [b, s, hidden]

 private:
  Child<TopKRouter> gate_;
  Child<Experts> experts_;
};

// The auxiliary loss of the Switch Transformer (Fedus et al., arXiv 2101.03961,
// equation 4) of all layers together, as transformers computes it: experts
// times the sum over them of the share of the tokens that chose one and its
// probability, both averaged over the layers. A scalar; k when all is even.
// REQUIRES: at least one layer, all with the same experts and tokens.
DistTensor load_balancing_loss(const std::vector<RouterLoad>& layers);
// The same, of the sum of so many layers' loads.
DistTensor load_balancing_loss(const RouterLoad& sum, int64_t layers);

}  // namespace dtensor::nn
