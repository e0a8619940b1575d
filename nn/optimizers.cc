// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/optimizers.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
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

// The gradient of what is to be minimised.
DistTensor downhill(const ParameterUpdate& u, bool maximize) {
  return maximize ? -u.gradient : u.gradient;
}

// The same with that of weight_decay / 2 * p^2.
DistTensor with_decay(const ParameterUpdate& u, bool maximize) {
  const DistTensor g = downhill(u, maximize);
  return u.weight_decay == 0 ? g : g + u.parameter * u.weight_decay;
}

DistTensor norm(const DistTensor& x) { return sqrt(sum(x * x)); }

// The average of gradients g over the root of that of their squares.
DistTensor adam_step(ParameterUpdate& u, const DistTensor& g,
                     const AdamOptions& o) {
  DistTensor &m = u.state("exp_avg"), &v = u.state("exp_avg_sq");
  m = lerp(m, g, 1 - o.beta1);
  v = lerp(v, g * g, 1 - o.beta2);
  DistTensor square = v;
  if (o.amsgrad) {
    DistTensor& largest = u.state("max_exp_avg_sq");
    square = largest = maximum(largest, v);
  }
  const auto t = static_cast<double>(u.step);
  const double mean = 1 - std::pow(o.beta1, t),
               variance = 1 - std::pow(o.beta2, t);
  return m / ((sqrt(square) / std::sqrt(variance) + o.eps) * mean);
}

}  // namespace

// ---- Adam ----

Adam::Adam(const ParameterGroups& groups, const AdamOptions& o)
    : Optimizer(groups, o.weight_decay,
                [&](const DistTensor& p) {
                  return o.amsgrad ? zeros(p, {"exp_avg", "exp_avg_sq",
                                               "max_exp_avg_sq"})
                                   : zeros(p, {"exp_avg", "exp_avg_sq"});
                }),
      options_(o) {
  check_option("beta1", o.beta1, 1);
  check_option("beta2", o.beta2, 1);
  check_option("eps", o.eps, 1e300);
}

DistTensor Adam::update(ParameterUpdate& u) {
  return u.parameter -
         adam_step(u, with_decay(u, options_.maximize), options_) * u.lr;
}

// ---- Adagrad ----

Adagrad::Adagrad(const ParameterGroups& groups, const AdagradOptions& o)
    : Optimizer(groups, o.weight_decay,
                [&](const DistTensor& p) {
                  return std::vector<NamedTensor>{
                      {"sum", full_like(p, o.initial_accumulator_value)}};
                }),
      options_(o) {
  check_option("lr_decay", o.lr_decay, 1e300);
  check_option("initial_accumulator_value", o.initial_accumulator_value, 1e300);
  check_option("eps", o.eps, 1e300);
}

DistTensor Adagrad::update(ParameterUpdate& u) {
  const AdagradOptions& o = options_;
  const DistTensor g = with_decay(u, o.maximize);
  DistTensor& sum = u.state("sum");
  sum = sum + g * g;
  const double lr = u.lr / (1 + static_cast<double>(u.step - 1) * o.lr_decay);
  return u.parameter - g / (sqrt(sum) + o.eps) * lr;
}

// ---- RMSprop ----

RMSprop::RMSprop(const ParameterGroups& groups, const RMSpropOptions& o)
    : Optimizer(groups, o.weight_decay,
                [&](const DistTensor& p) {
                  std::vector<NamedTensor> s = zeros(p, {"square_avg"});
                  if (o.momentum > 0)
                    s.push_back({"momentum_buffer", zeros_like(p)});
                  if (o.centered) s.push_back({"grad_avg", zeros_like(p)});
                  return s;
                }),
      options_(o) {
  check_option("alpha", o.alpha, 1e300);
  check_option("eps", o.eps, 1e300);
  check_option("momentum", o.momentum, 1e300);
}

DistTensor RMSprop::update(ParameterUpdate& u) {
  const RMSpropOptions& o = options_;
  const DistTensor g = with_decay(u, o.maximize);
  DistTensor& square = u.state("square_avg");
  square = lerp(square, g * g, 1 - o.alpha);
  DistTensor variance = square;
  if (o.centered) {
    DistTensor& mean = u.state("grad_avg");
    mean = lerp(mean, g, 1 - o.alpha);
    variance = square - mean * mean;
  }
  const DistTensor way = g / (sqrt(variance) + o.eps);
  if (o.momentum == 0) return u.parameter - way * u.lr;
  DistTensor& buffer = u.state("momentum_buffer");
  buffer = buffer * o.momentum + way;
  return u.parameter - buffer * u.lr;
}

// ---- Lion ----

Lion::Lion(const ParameterGroups& groups, const LionOptions& o)
    : Optimizer(groups, o.weight_decay,
                [](const DistTensor& p) { return zeros(p, {"exp_avg"}); }),
      options_(o) {
  check_option("beta1", o.beta1, 1);
  check_option("beta2", o.beta2, 1);
}

DistTensor Lion::update(ParameterUpdate& u) {
  DistTensor& m = u.state("exp_avg");
  const DistTensor way = sign(lerp(m, u.gradient, 1 - options_.beta1));
  m = lerp(m, u.gradient, 1 - options_.beta2);
  return u.parameter * (1 - u.lr * u.weight_decay) - way * u.lr;
}

// ---- Adafactor ----

Adafactor::Adafactor(const ParameterGroups& groups, const AdafactorOptions& o)
    : Optimizer(groups, o.weight_decay,
                [](const DistTensor& p) {
                  if (p.ndim() < 2) return zeros(p, {"variance"});
                  return std::vector<NamedTensor>{
                      {"row_var", zeros_like(sum(p, {-1}, true))},
                      {"col_var", zeros_like(sum(p, {-2}, true))}};
                }),
      options_(o) {
  check_option("eps1", o.eps1.value_or(0), 1e300);
  check_option("eps2", o.eps2, 1e300);
  DT_CHECK(o.beta2_decay <= 0 && o.d >= 1, "optimizer",
           "beta2_decay is {} and d is {}; write at most 0, and at least 1",
           o.beta2_decay, o.d);
}

DistTensor Adafactor::update(ParameterUpdate& u) {
  const AdafactorOptions& o = options_;
  const auto t = static_cast<double>(u.step);
  const double new_share = std::pow(t, o.beta2_decay),
               rho = std::min(u.lr, 1 / std::sqrt(t)),
               eps1 =
                   o.eps1.value_or(u.parameter.dtype() == DType::kF64
                                       ? std::numeric_limits<double>::epsilon()
                                       : std::numeric_limits<float>::epsilon());
  const double root =
      std::sqrt(static_cast<double>(numel(u.parameter.shape())));
  const DistTensor g = downhill(u, o.maximize), square = g * g;
  DistTensor variance;
  if (g.ndim() < 2) {
    DistTensor& v = u.state("variance");
    variance = v = lerp(v, square, new_share);
  } else {
    DistTensor &row = u.state("row_var"), &col = u.state("col_var");
    // Reduced here, once, and not where it is used and where it is kept.
    const auto averaged = [&](const DistTensor& old, int dim) {
      return lerp(old, mean(square, {dim}, true).redistribute(old.layout()),
                  new_share);
    };
    row = averaged(row, -1);
    col = averaged(col, -2);
    variance = row * col / clamp_min(mean(row, {-2}, true), eps1);
  }
  const DistTensor way = rsqrt(clamp_min(variance, eps1 * eps1)) * g;
  const DistTensor alpha = clamp_min(norm(u.parameter) / root, o.eps2),
                   longer = clamp_min(norm(way) / (root * o.d), 1);
  return u.parameter * (1 - u.lr * u.weight_decay) -
         way * (alpha * rho / longer);
}

// ---- Optimizers of matrices ----

namespace {

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

// The update of AdamW, for a parameter that is none of the matrices.
DistTensor adamw(ParameterUpdate& u, const AdamWOptions& o) {
  return u.parameter * (1 - u.lr * u.weight_decay) -
         adam_step(u, u.gradient,
                   {.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps}) *
             u.lr;
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
  if (u.states.size() == 2) return adamw(u, others_);
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
  if (u.states[0].name == "exp_avg") return adamw(u, others_);
  const DistTensor g = with_decay(u, false);
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
