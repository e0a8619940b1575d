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

// ---- AdamW ----

DistTensor AdamW::updated(ParameterUpdate& u, const AdamWOptions& o) {
  return u.parameter * (1 - u.lr * u.weight_decay) -
         adam_step(u, u.gradient,
                   {.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps}) *
             u.lr;
}

}  // namespace dtensor::nn
