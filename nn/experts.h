// A mixture of experts in place of a feed-forward layer, as in Mixtral (Jiang
// et al., arXiv 2401.04088).
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/nn/module.h"

namespace dtensor::nn {

// How a router distributed a batch, for the load-balancing loss. Both tensors
// are [experts] in f32 (f64 for f64).
struct RouterLoad {
  // The share of the tokens that chose each expert; the shares sum to k.
  DistTensor chosen;
  DistTensor probability;  // the mean of the softmax over the tokens
};

// The sum of the loads of two layers.
RouterLoad operator+(const RouterLoad&, const RouterLoad&);

// The experts that each token goes to, and their weights.
struct Routed {
  DistTensor ids, weights;  // [tokens, k]
  RouterLoad load;
};

// Computes softmax(x W^T) over all experts, chooses the k largest, and scales
// their weights to sum to one. Parameter: weight [experts, hidden].
class TopKRouter : public Module {
 public:
  // Throws Error unless 1 <= k <= experts.
  TopKRouter(const Scope& at, int64_t hidden, int64_t experts, int64_t k);
  virtual Routed forward(const DistTensor& x) const;  // x [tokens, hidden]

 private:
  DistTensor weight_;
  int64_t k_;
};

// Parameters: gate_proj and up_proj [experts, ffn, hidden], down_proj [experts,
// hidden, ffn]; see ops/experts.h. If they are split over the first dimension,
// tokens are sent to the ranks of their experts.
class Experts : public Module {
 public:
  Experts(const Scope& at, int64_t hidden, int64_t ffn, int64_t experts);
  // x [tokens, hidden], ids and weights [tokens, k] -> [tokens, hidden].
  virtual DistTensor forward(const DistTensor& x, const DistTensor& ids,
                             const DistTensor& weights) const;

 private:
  DistTensor gate_proj_, up_proj_, down_proj_;
};

struct Mixed {
  DistTensor y;  // in the shape of x
  RouterLoad load;
};

// Submodules: gate (the router) and experts.
class MixtureOfExperts : public Module {
 public:
  MixtureOfExperts(const Scope& at, int64_t hidden, int64_t ffn,
                   int64_t experts, int64_t k);
  virtual Mixed forward(const DistTensor& x) const;  // x [b, s, hidden]

 private:
  Child<TopKRouter> gate_;
  Child<Experts> experts_;
};

// The auxiliary loss of the Switch Transformer (Fedus et al., arXiv 2101.03961,
// equation 4) over all layers together, as Hugging Face transformers computes
// it: average `chosen` and `probability` over the layers, then multiply the
// number of experts by the sum over experts of chosen * probability. Returns a
// scalar, which is k if all experts are used equally. REQUIRES: at least one
// layer, and the same experts and tokens in all.
DistTensor load_balancing_loss(const std::vector<RouterLoad>& layers);
// The same loss from the summed load of `layers` layers.
DistTensor load_balancing_loss(const RouterLoad& sum, int64_t layers);

}  // namespace dtensor::nn
