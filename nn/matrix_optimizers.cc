// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/matrix_optimizers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

std::vector<NamedTensor> zeros(const DistTensor& p,
                               std::initializer_list<const char*> names) {
  std::vector<NamedTensor> states;
  for (const char* name : names) states.push_back({name, zeros_like(p)});
  return states;
}

// The matrices, and after them the others with their own weight decay.
ParameterGroups joined(std::string_view optimizer,
                       const ParameterGroups& matrices,
                       const ParameterGroups& others, double weight_decay) {
  std::vector<ParameterGroup> all = matrices.groups();
  for (const ParameterGroup& group : all)
    for (const auto& [name, p] : group.parameters)
      DT_CHECK(p.ndim() == 2, optimizer,
               "parameter {} is {}, but only matrices get this update; list it "
               "in the argument `others`",
               name, p.spec()->to_string());
  for (ParameterGroup group : others.groups()) {
    if (!group.weight_decay) group.weight_decay = weight_decay;
    all.push_back(std::move(group));
  }
  return all;
}

int64_t count(const ParameterGroups& groups) {
  int64_t n = 0;
  for (const ParameterGroup& group : groups.groups())
    n += std::ssize(group.parameters);
  return n;
}

// Splits a dimension of a matrix over all axes that split x.
Placements over_axes_of(const DistTensor& x, int dim) {
  std::vector<std::pair<std::string, Placement>> split;
  for (int axis = 0; axis < x.mesh().num_axes(); ++axis)
    if (x.spec()->split_axes() >> axis & 1)
      split.emplace_back(x.mesh().axis_name(axis), Shard(dim));
  return split;
}

// A matrix with the singular vectors of g and singular values near 1.
DistTensor orthogonalized(const DistTensor& g, const MuonOptions& o) {
  const bool tall = g.size(0) > g.size(1);
  const DistTensor wide = tall ? transpose(g) : g;
  DistTensor x = wide;
  if (!x.spec()->dim(0).whole()) x = x.redistribute(over_axes_of(x, 1));
  x = cast(x, o.ns_dtype.value_or(g.dtype()));
  x = x / clamp_min(sqrt(sum(x * x)), o.eps);
  const Placements by_rows = over_axes_of(x, 0), whole;
  const bool square = !x.spec()->split_axes() || x.size(1) >= 2 * x.size(0);
  const auto [a, b, c] = o.ns_coefficients;
  for (int i = 0; i < o.ns_steps; ++i) {
    const DistTensor gram = matmul(x, transpose(x));  // partial
    if (square) {
      const DistTensor rows = gram.redistribute(by_rows);
      const DistTensor p =
          rows * b + matmul(rows, rows.redistribute(whole)) * c;
      x = x * a + matmul(p.redistribute(whole), x);
    } else {
      // One product with x more, and one exchange less.
      const DistTensor all = gram.redistribute(whole), y = matmul(all, x);
      x = x * a + y * b + matmul(all, y) * c;
    }
  }
  x = cast(x, g.dtype()).redistribute(wide.layout());
  return tall ? transpose(x) : x;
}

double factor(AdjustLr how, const DistTensor& x) {
  const auto m = static_cast<double>(x.size(0)),
             n = static_cast<double>(x.size(1));
  if (how == AdjustLr::kMatchRmsAdamW) return 0.2 * std::sqrt(std::max(m, n));
  return std::sqrt(how == AdjustLr::kOriginal ? std::max(1.0, m / n) : m / n);
}

}  // namespace

Muon::Muon(const ParameterGroups& matrices, const MuonOptions& o,
           const ParameterGroups& others, const AdamWOptions& adamw)
    : Optimizer(joined("muon", matrices, others, adamw.weight_decay),
                o.weight_decay,
                [left = count(matrices)](const DistTensor& p) mutable {
                  return left-- > 0 ? zeros(p, {"momentum_buffer"})
                                    : zeros(p, {"exp_avg", "exp_avg_sq"});
                }),
      options_(o),
      others_(adamw) {
  check_option("momentum", o.momentum, 1);
  check_option("eps", o.eps, 1e300);
  check_option("ns_steps", o.ns_steps, 100);
  check_option("beta1", adamw.beta1, 1);
  check_option("beta2", adamw.beta2, 1);
}

DistTensor Muon::update(ParameterUpdate& u) {
  if (u.states.size() == 2) return AdamW::updated(u, others_);
  DistTensor& buffer = u.state("momentum_buffer");
  buffer = lerp(buffer, u.gradient, 1 - options_.momentum);
  const DistTensor way =
      options_.nesterov ? lerp(u.gradient, buffer, options_.momentum) : buffer;
  return u.parameter * (1 - u.lr * u.weight_decay) -
         orthogonalized(way, options_) *
             (u.lr * factor(options_.adjust_lr_fn, u.parameter));
}

// ---- Shampoo ----

namespace {

// value times the identity [n, n], with rows split over the axes that split x.
DistTensor diagonal(const DistTensor& x, int64_t n, double value, DType t) {
  return eye(n, n, x.mesh(), t).redistribute(over_axes_of(x, 0)) * value;
}

// a^(-1/4) of a positive definite matrix whose rows are split, by the coupled
// Newton iteration of Anil et al., arXiv 2002.09018, algorithm I: x converges
// to the root, and r to the identity.
DistTensor inverse_root(const DistTensor& a) {
  constexpr double kPower = 4;
  const Placements whole;
  const DistTensor scale =
      (1 + kPower) / 2 / sqrt(sum(a * a)).redistribute(whole);
  const DistTensor one = diagonal(a, a.size(0), 1, a.dtype());
  DistTensor x = one * pow(scale, 1 / kPower), r = a * scale;
  for (int i = 0; i < Shampoo::kIterations; ++i) {
    const DistTensor all = r.redistribute(whole);
    const DistTensor way = one * (1 + 1 / kPower) - r * (1 / kPower);
    // x times `way`, and r times its fourth power.
    x = x * (1 + 1 / kPower) - matmul(x, all) * (1 / kPower);
    const DistTensor two =
        way * (1 + 1 / kPower) - matmul(way, all) * (1 / kPower);
    const DistTensor four = matmul(two, two.redistribute(whole));
    r = matmul(four, all);
  }
  return x;
}

}  // namespace

Shampoo::Shampoo(const ParameterGroups& matrices, const ShampooOptions& o,
                 const ParameterGroups& others, const AdamWOptions& adamw)
    : Optimizer(joined("shampoo", matrices, others, adamw.weight_decay),
                o.weight_decay,
                [&, left = count(matrices)](const DistTensor& p) mutable {
                  if (left-- <= 0) return zeros(p, {"exp_avg", "exp_avg_sq"});
                  std::vector<NamedTensor> s;
                  if (o.momentum > 0) s = zeros(p, {"momentum_buffer"});
                  for (const int d : {0, 1})
                    s.push_back({d ? "right" : "left",
                                 diagonal(p, p.size(d), o.epsilon, p.dtype())});
                  return s;
                }),
      options_(o),
      others_(adamw) {
  check_option("momentum", o.momentum, 1);
  check_option("epsilon", o.epsilon, 1e300);
  check_option("beta1", adamw.beta1, 1);
  check_option("beta2", adamw.beta2, 1);
}

DistTensor Shampoo::update(ParameterUpdate& u) {
  if (u.states[0].name == "exp_avg") return AdamW::updated(u, others_);
  const DistTensor g = u.weight_decay == 0
                           ? u.gradient
                           : u.gradient + u.parameter * u.weight_decay;
  DistTensor &left = u.state("left"), &right = u.state("right");
  const Placements by_rows = over_axes_of(g, 0);
  left = left + matmul(g, transpose(g)).redistribute(by_rows);
  right = right + matmul(transpose(g), g).redistribute(by_rows);
  const auto root = [&](const DistTensor& sum) {
    return cast(inverse_root(cast(sum, DType::kF64)), g.dtype());
  };
  DistTensor way = matmul(matmul(root(left), g), root(right));
  way = way.redistribute(g.layout());
  if (options_.momentum > 0) {
    DistTensor& buffer = u.state("momentum_buffer");
    way = buffer = buffer * options_.momentum + way;
  }
  return u.parameter - way * u.lr;
}

}  // namespace dtensor::nn
