// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/experts.h"

#include "dtensor/nn/layers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
TopKRouter::TopKRouter(const Scope& at, int64_t hidden, int64_t experts,
                       int64_t k, bool normalize)
    : Module(at),
      weight_(add_parameter("weight", {experts, hidden}, Init::fan_in(hidden))),
      k_(k),
      normalize_(normalize) {
  DT_CHECK(k >= 1 && k <= experts, "router",
           "k is {} and experts is {}; write 1 or more for k, and at least as "
           "many experts",
           k, experts);
}

Routed TopKRouter::forward(const DistTensor& x) const {
  const DType wide = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const DistTensor probability = softmax(cast(linear(x, weight_), wide), -1);
  const TopK best = topk(probability, k_);
  const DistTensor weights =
      normalize_ ? best.values / sum(best.values, {-1}, true) : best.values;
  const DistTensor chosen = cast(one_hot(best.indices, weight_.size(0)), wide);
  std::vector<int> tokens;
  for (int d = 0; d + 1 < x.ndim(); ++d) tokens.push_back(d);
  return {best.indices,
          cast(weights, x.dtype()),
          {mean(sum(chosen, {-2}), tokens), mean(probability, tokens)}};
}

Experts::Experts(const Scope& at, int64_t hidden, int64_t ffn, int64_t experts)
    : Module(at),
      gate_proj_(add_parameter("gate_proj", {experts, ffn, hidden},
                               Init::fan_in(hidden))),
      up_proj_(add_parameter("up_proj", {experts, ffn, hidden},
                             Init::fan_in(hidden))),
      down_proj_(add_parameter("down_proj", {experts, hidden, ffn},
                               Init::fan_in(ffn))) {}

DistTensor Experts::forward(const DistTensor& x, const DistTensor& ids,
                            const DistTensor& weights) const {
  const auto flat = [](const DistTensor& t) {
    return t.ndim() == 3 ? flatten(t, 0, 1) : t;
  };
  const DistTensor y =
      experts(flat(x), flat(ids), flat(weights), gate_proj_, up_proj_,
              down_proj_, x.ndim() == 3 ? x.size(1) : 0);
  return x.ndim() == 3 ? reshape(y, x.shape()) : y;
}

MixtureOfExperts::MixtureOfExperts(const Scope& at, int64_t hidden, int64_t ffn,
                                   int64_t experts, int64_t k, bool normalize)
    : FeedForward(at),
      gate_(add<TopKRouter>("gate", hidden, experts, k, normalize)),
      experts_(add<Experts>("experts", hidden, ffn, experts)) {}

Mixed MixtureOfExperts::forward(const DistTensor& x) const {
  const Routed to = gate_(x);
  return {experts_(x, to.ids, to.weights), to.load};
}

RouterLoad operator+(const RouterLoad& a, const RouterLoad& b) {
  return {a.chosen + b.chosen, a.probability + b.probability};
}

DistTensor load_balancing_loss(const RouterLoad& load, int64_t layers) {
  const auto n = static_cast<double>(layers);
  return sum(load.chosen * load.probability) *
         (static_cast<double>(load.chosen.size(0)) / (n * n));
}

}  // namespace dtensor::nn
