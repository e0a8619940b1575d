// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/matrix_optimizers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "dtensor/nn/owners.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"

namespace dtensor::nn {
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

// The axes that split x, each splitting dimension `dim` instead.
Placements over_axes_of(const Spec* x, int dim) {
  std::vector<std::pair<std::string, Placement>> split;
  for (int axis = 0; axis < x->mesh().num_axes(); ++axis)
    if (x->split_axes() >> axis & 1)
      split.emplace_back(x->mesh().axis_name(axis), Shard(dim));
  return split;
}

// The gradient with that of weight_decay / 2 * p^2.
DistTensor with_decay(const ParameterUpdate& u) {
  return u.weight_decay == 0 ? u.gradient
                             : u.gradient + u.parameter * u.weight_decay;
}

Planner& planner() { return RankContext::current().planner; }

// The price of moving a matrix [n, n], whose rows the axes of g split, to all
// ranks; or of a sum over these axes, if it is partial.
int64_t gather_ps(const Spec* g, int64_t n, DType t, bool partial = false) {
  const Mesh& mesh = g->mesh();
  const Spec* all = Spec::replicated(mesh, {n, n}, t);
  Layout from = all->layout();
  if (partial) {
    for (int axis = 0; axis < mesh.num_axes(); ++axis)
      if (g->split_axes() >> axis & 1)
        from.partials.push_back({axis, ReduceOp::kSum});
  } else {
    from = over_axes_of(g, 0).resolve(mesh, all->shape());
  }
  return planner().plan(all->with(from), all).time_ps;
}

// The largest share of the matrix that a rank has.
double share(const Spec* g) {
  return static_cast<double>(g->largest_part_bytes()) /
         std::max(1.0,
                  static_cast<double>(numel(g->shape()) * size_of(g->dtype())));
}

}  // namespace

// ---- Optimizers of matrices ----

MatrixOptimizer::Setup MatrixOptimizer::setup(
    std::string_view optimizer, const ParameterGroups& matrices,
    const ParameterGroups& others, const AdamWOptions& adamw, MatrixWork how,
    std::optional<DType> sent, const std::function<Price(const Spec*)>& price) {
  check_option("beta1", adamw.beta1, 1);
  check_option("beta2", adamw.beta2, 1);
  Setup s{.groups = joined(optimizer, matrices, others, adamw.weight_decay),
          .others = adamw};
  std::vector<MatrixTask> tasks;
  for (const ParameterGroup& group : matrices.groups())
    for (const auto& [name, p] : group.parameters) {
      const DType type = p.dtype() == DType::kF64 ? p.dtype() : DType::kF32;
      s.sent.emplace_back(p.grad_spec()->with(sent.value_or(type)));
      const auto [split_ps, whole_ps] = price(s.sent.back());
      tasks.push_back({s.sent.back(), split_ps, whole_ps});
    }
  s.owners =
      how == MatrixWork::kSplit
          ? std::vector<int64_t>(tasks.size(), -1)
          : assign_owners(tasks, planner().cost(), how == MatrixWork::kOwned);
  return s;
}

MatrixOptimizer::MatrixOptimizer(Setup s, double weight_decay,
                                 const MatrixStates& states)
    : Optimizer(s.groups, weight_decay,
                [&, next = size_t{0}](const DistTensor& p) mutable {
                  if (next < s.owners.size())
                    return states(p, s.owners[next++]);
                  return std::vector<NamedTensor>{
                      {"exp_avg", zeros_like(p)},
                      {"exp_avg_sq", zeros_like(p)}};
                }),
      setup_(std::move(s)) {
  setup_.groups = std::vector<ParameterGroup>{};
}

int64_t MatrixOptimizer::owner_bytes() const {
  return nn::owner_bytes(setup_.sent, setup_.owners,
                         RankContext::current().world_rank);
}

std::vector<DistTensor> MatrixOptimizer::update_all(
    std::span<ParameterUpdate> all) {
  std::vector<DistTensor> values(all.size()), moved;
  std::vector<SpecRef> there, back;
  std::vector<size_t> of;
  for (size_t k = 0; k < all.size(); ++k) {
    ParameterUpdate& u = all[k];
    if (u.index >= setup_.owners.size()) {
      values[k] = AdamW::updated(u, setup_.others);
      continue;
    }
    const DistTensor x = matrix(u);
    const int64_t owner = setup_.owners[u.index];
    if (owner < 0) {
      values[k] = finish(u, work(u, x).redistribute(x.layout()));
      continue;
    }
    moved.push_back(unsqueeze(x, 0));
    const Spec* spec = moved.back().spec();
    back.emplace_back(spec);
    there.emplace_back(
        spec->with(owned_layout(spec->mesh(), spec->shape(), owner)));
    of.push_back(k);
  }
  relayout(moved, there);
  for (size_t i = 0; i < of.size(); ++i) moved[i] = work(all[of[i]], moved[i]);
  relayout(moved, back);
  for (size_t i = 0; i < of.size(); ++i)
    values[of[i]] = finish(all[of[i]], squeeze(moved[i], 0));
  return values;
}

DistTensor MatrixOptimizer::stacked(const DistTensor& state,
                                    const DistTensor& like) {
  if (like.ndim() == 2) return state;
  const DistTensor stack = unsqueeze(state, 0);
  Layout layout = Layout::replicated(stack.shape());
  layout.dims[0] = like.layout().dims[0];
  return stack.redistribute(layout);
}

DistTensor MatrixOptimizer::unstacked(const DistTensor& stack,
                                      const DistTensor& like) {
  if (stack.ndim() == 2) return stack;
  return squeeze(stack.redistribute(unsqueeze(like, 0).layout()), 0);
}

// ---- Muon ----

namespace {

// A matrix with the singular vectors of g and singular values near 1. g may be
// a stack [1, m, n] of which one rank has all.
DistTensor orthogonalized(const DistTensor& g, const MuonOptions& o) {
  const auto turned = [](const DistTensor& x) { return transpose(x, -2, -1); };
  const bool tall = g.size(-2) > g.size(-1), whole = g.ndim() == 3;
  DistTensor x = tall ? turned(g) : g;
  if (!whole && !x.spec()->dim(0).whole())
    x = x.redistribute(over_axes_of(x.spec(), 1));
  x = x / clamp_min(sqrt(sum(x * x, {-2, -1}, true)), o.eps);
  const Placements by_rows = over_axes_of(x.spec(), 0), all_ranks;
  const bool square =
      whole || !x.spec()->split_axes() || x.size(-1) >= 2 * x.size(-2);
  const auto [a, b, c] = o.ns_coefficients;
  for (int i = 0; i < o.ns_steps; ++i) {
    const DistTensor gram = matmul(x, turned(x));  // partial
    if (whole) {
      x = x * a + matmul(gram * b + matmul(gram, gram) * c, x);
    } else if (square) {
      const DistTensor rows = gram.redistribute(by_rows);
      const DistTensor p =
          rows * b + matmul(rows, rows.redistribute(all_ranks)) * c;
      x = x * a + matmul(p.redistribute(all_ranks), x);
    } else {
      // One product with x more, and one exchange less.
      const DistTensor all = gram.redistribute(all_ranks), y = matmul(all, x);
      x = x * a + y * b + matmul(all, y) * c;
    }
  }
  return tall ? turned(x) : x;
}

double factor(AdjustLr how, const DistTensor& x) {
  const auto m = static_cast<double>(x.size(0)),
             n = static_cast<double>(x.size(1));
  if (how == AdjustLr::kMatchRmsAdamW) return 0.2 * std::sqrt(std::max(m, n));
  return std::sqrt(how == AdjustLr::kOriginal ? std::max(1.0, m / n) : m / n);
}

// The prices of orthogonalized().
std::pair<int64_t, int64_t> muon_ps(const Spec* g, const MuonOptions& o) {
  const Shape& shape = g->shape();
  const DType t = g->dtype();
  const int64_t m = std::min(shape[0], shape[1]),
                n = std::max(shape[0], shape[1]);
  const int64_t long_product = product_ps(planner().cost(), m, m, n, t),
                short_product = product_ps(planner().cost(), m, m, m, t);
  const int64_t whole = o.ns_steps * (2 * long_product + short_product);
  if (!g->split_axes()) return {whole, whole};
  const bool square = n >= 2 * m;
  const int64_t reduce = gather_ps(g, m, t, true), gather = gather_ps(g, m, t);
  const auto work =
      static_cast<double>(square ? whole : o.ns_steps * 3 * long_product);
  int64_t ps = static_cast<int64_t>(work * share(g)) +
               o.ns_steps * (reduce + (square ? gather : 0));
  const int shorter = shape[0] > shape[1] ? 1 : 0;
  if (!g->layout().dims[static_cast<size_t>(shorter)].whole()) {
    const Layout l = over_axes_of(g, 1 - shorter).resolve(g->mesh(), shape);
    ps += 2 * planner().plan(g, g->with(l)).time_ps;
  }
  return {ps, whole};
}

}  // namespace

Muon::Muon(const ParameterGroups& matrices, const MuonOptions& o,
           const ParameterGroups& others, const AdamWOptions& adamw)
    : MatrixOptimizer(
          setup("muon", matrices, others, adamw, o.work, o.ns_dtype,
                [&](const Spec* g) {
                  const auto [split, whole] = muon_ps(g, o);
                  return Price{split, whole};
                }),
          o.weight_decay,
          [](const DistTensor& p, int64_t) {
            return std::vector<NamedTensor>{{"momentum_buffer", zeros_like(p)}};
          }),
      options_(o) {
  check_option("momentum", o.momentum, 1);
  check_option("eps", o.eps, 1e300);
  check_option("ns_steps", o.ns_steps, 100);
}

DistTensor Muon::matrix(ParameterUpdate& u) {
  DistTensor& buffer = u.state("momentum_buffer");
  buffer = lerp(buffer, u.gradient, 1 - options_.momentum);
  const DistTensor way =
      options_.nesterov ? lerp(u.gradient, buffer, options_.momentum) : buffer;
  return cast(way, options_.ns_dtype.value_or(way.dtype()));
}

DistTensor Muon::work(ParameterUpdate&, const DistTensor& x) {
  return orthogonalized(x, options_);
}

DistTensor Muon::finish(ParameterUpdate& u, const DistTensor& way) {
  return u.parameter * (1 - u.lr * u.weight_decay) -
         cast(way, u.parameter.dtype()) *
             (u.lr * factor(options_.adjust_lr_fn, u.parameter));
}

// ---- Shampoo ----

namespace {

// value times the identity [n, n], with rows split over the axes that split x,
// or owned.
DistTensor diagonal_of(const DistTensor& x, int64_t n, double value, DType t,
                       int64_t owner = -1) {
  const DistTensor one = eye(n, n, x.mesh(), t);
  return (owner < 0
              ? one.redistribute(over_axes_of(x.spec(), 0))
              : one.redistribute(owned_layout(x.mesh(), one.shape(), owner))) *
         value;
}

// a^(-1/4) of a positive definite matrix whose rows are split, or of a stack of
// one that a rank has, by the coupled Newton iteration of Anil et al., arXiv
// 2002.09018, algorithm I: x converges to the root, and r to the identity.
DistTensor inverse_root(const DistTensor& a) {
  constexpr double kPower = 4;
  const bool whole = a.ndim() == 3;
  const auto gathered = [&](const DistTensor& x) {
    return whole ? x : x.redistribute(Placements());
  };
  const DistTensor scale =
      (1 + kPower) / 2 / sqrt(gathered(sum(a * a, {-2, -1}, true)));
  const DistTensor one =
      whole ? unsqueeze(eye(a.size(-1), a.size(-1), a.mesh(), a.dtype()), 0)
                  .redistribute(a.layout())
            : diagonal_of(a, a.size(0), 1, a.dtype());
  DistTensor x = one * pow(scale, 1 / kPower), r = a * scale;
  for (int i = 0; i < Shampoo::kIterations; ++i) {
    const DistTensor all = gathered(r);
    const DistTensor way = one * (1 + 1 / kPower) - r * (1 / kPower);
    // x times `way`, and r times its fourth power.
    x = x * (1 + 1 / kPower) - matmul(x, all) * (1 / kPower);
    const DistTensor two =
        way * (1 + 1 / kPower) - matmul(way, all) * (1 / kPower);
    const DistTensor four = matmul(two, gathered(two));
    r = matmul(four, all);
  }
  return x;
}

}  // namespace

Shampoo::Shampoo(const ParameterGroups& matrices, const ShampooOptions& o,
                 const ParameterGroups& others, const AdamWOptions& adamw)
    : MatrixOptimizer(
          setup("shampoo", matrices, others, adamw, o.work, std::nullopt,
                [&](const Spec* g) {
                  Price price = {0, 0};
                  for (const int64_t n : g->shape()) {
                    const int64_t work =
                        kIterations * 4 *
                        product_ps(planner().cost(), n, n, n, DType::kF64);
                    price.whole_ps += work;
                    price.split_ps +=
                        static_cast<int64_t>(static_cast<double>(work) *
                                             share(g)) +
                        2 * kIterations * gather_ps(g, n, DType::kF64);
                  }
                  return price;
                }),
          o.weight_decay,
          [&](const DistTensor& p, int64_t owner) {
            std::vector<NamedTensor> s;
            if (o.momentum > 0) s.push_back({"momentum_buffer", zeros_like(p)});
            for (const int d : {0, 1}) {
              const std::string name = d ? "right" : "left";
              s.push_back({name, diagonal_of(p, p.size(d), o.epsilon, p.dtype(),
                                             owner)});
              if (o.update_freq > 1)
                s.push_back({name + "_root",
                             diagonal_of(p, p.size(d), 0, p.dtype(), owner)});
            }
            return s;
          }),
      options_(o) {
  check_option("momentum", o.momentum, 1);
  check_option("epsilon", o.epsilon, 1e300);
  DT_CHECK(o.update_freq > 0, "optimizer",
           "update_freq is {}; it must be at least 1", o.update_freq);
}

DistTensor Shampoo::matrix(ParameterUpdate& u) { return with_decay(u); }

DistTensor Shampoo::work(ParameterUpdate& u, const DistTensor& g) {
  const DistTensor turned = transpose(g, -2, -1);
  // The root of the sum, to which it adds `square`.
  const auto root = [&](const std::string& name, const DistTensor& square) {
    DistTensor& kept = u.state(name);
    DistTensor sum = stacked(kept, g);
    sum = sum + square.redistribute(sum.layout());
    kept = unstacked(sum, kept);
    const bool often = options_.update_freq == 1;
    if (!often && (u.step - 1) % options_.update_freq != 0)
      return stacked(u.state(name + "_root"), g);
    const DistTensor r = cast(inverse_root(cast(sum, DType::kF64)), g.dtype());
    if (!often) {
      DistTensor& old = u.state(name + "_root");
      old = unstacked(r, old);
    }
    return r;
  };
  const DistTensor left = root("left", matmul(g, turned)),
                   right = root("right", matmul(turned, g));
  return matmul(matmul(left, g), right);
}

DistTensor Shampoo::finish(ParameterUpdate& u, const DistTensor& x) {
  DistTensor way = x;
  if (options_.momentum > 0) {
    DistTensor& buffer = u.state("momentum_buffer");
    way = buffer = buffer * options_.momentum + way;
  }
  return u.parameter - way * u.lr;
}

}  // namespace dtensor::nn
