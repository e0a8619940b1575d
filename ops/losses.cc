// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/losses.h"

#include <cmath>
#include <numbers>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/distance.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/loss_parts.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/sum_squares.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"

namespace dtensor {

namespace {

DistTensor weighted(const DistTensor& loss, const DistTensor& weight) {
  return weight.defined() ? mul(loss, weight) : loss;
}

// Whether each index of dimension `dim` of x is the target: [n, ...] as
// [n, classes, ...]. Split as x is, so that no rank compares more than its own
// classes.
DistTensor is_class(const DistTensor& x, const DistTensor& targets,
                    int dim = 1) {
  Layout layout = Layout::replicated({x.size(dim)});
  layout.dims[0] = x.layout().dims[static_cast<size_t>(dim)];
  const DistTensor classes = along_dim(
      arange(x.size(dim), x.mesh(), layout, targets.dtype()), x.ndim(), dim);
  return eq(unsqueeze(targets, dim), classes);
}

// x as [b, classes]: a vector, or one number, is a batch of one.
DistTensor as_rows(std::string_view op, const DistTensor& x) {
  DT_CHECK(x.ndim() <= 2, op,
           "{} is neither [b, classes] nor [classes]; pass one of these",
           x.spec()->to_string());
  return x.ndim() == 2 ? x : reshape(x, {1, numel(x.shape())});
}

void check_targets(std::string_view op, const DistTensor& x,
                   const DistTensor& targets, bool fit, const Shape& wanted) {
  DT_CHECK(fit && !is_float(targets.dtype()), op,
           "targets {} do not fit {}; pass integers of shape {}",
           targets.spec()->to_string(), x.spec()->to_string(),
           to_string(wanted));
}

// The weight of each class is given as a vector, or not at all.
void check_weight(std::string_view op, const DistTensor& x,
                  const DistTensor& weight, int64_t classes) {
  if (weight.defined())
    DT_CHECK(weight.shape() == Shape{classes}, op,
             "the weight {} does not fit {}; pass a vector of size {}",
             weight.spec()->to_string(), x.spec()->to_string(), classes);
}

}  // namespace

DistTensor mse_loss(const DistTensor& x, const DistTensor& y, Reduction r) {
  const DistTensor d = sub(x, y);
  if (r == Reduction::kNone || r == Reduction::kBatchMean ||
      !is_float(d.dtype()))
    return reduced(square(d), r);
  const DistTensor loss = sum_squares(d, {}, false);
  return r == Reduction::kSum
             ? loss
             : div(loss, static_cast<double>(numel(d.shape())));
}

DistTensor l1_loss(const DistTensor& x, const DistTensor& y, Reduction r) {
  return reduced(abs(sub(x, y)), r);
}

DistTensor huber_loss(const DistTensor& x, const DistTensor& y, Reduction r,
                      double delta) {
  DT_CHECK(delta > 0, "huber_loss", "delta is {}; write a number above 0",
           delta);
  const DistTensor d = sub(x, y), size = abs(d);
  const DistTensor near = mul(square(d), 0.5);
  const DistTensor far = mul(sub(size, delta / 2), delta);
  return reduced(where(le(size, delta), near, far), r);
}

DistTensor smooth_l1_loss(const DistTensor& x, const DistTensor& y, Reduction r,
                          double beta) {
  DT_CHECK(beta >= 0, "smooth_l1_loss", "beta is {}; write 0 or more", beta);
  return beta == 0 ? l1_loss(x, y, r) : div(huber_loss(x, y, r, beta), beta);
}

DistTensor binary_cross_entropy(const DistTensor& p, const DistTensor& y,
                                Reduction r, const DistTensor& weight) {
  auto bounded_log = [](const DistTensor& x) { return maximum(log(x), -100); };
  const DistTensor q = add(neg(p), 1), other = add(neg(y), 1);
  return reduced(
      weighted(neg(add(mul(y, bounded_log(p)), mul(other, bounded_log(q)))),
               weight),
      r);
}

DistTensor binary_cross_entropy_with_logits(const DistTensor& x,
                                            const DistTensor& y, Reduction r,
                                            const DistTensor& weight) {
  return reduced(weighted(sub(unary("softplus", x), mul(x, y)), weight), r);
}

DistTensor kl_div(const DistTensor& x, const DistTensor& y, Reduction r,
                  bool log_target) {
  if (log_target) return reduced(mul(exp(y), sub(y, x)), r);
  // y log y is 0 for y = 0.
  const DistTensor positive = gt(y, 0);
  const DistTensor safe = where(positive, y, 1);
  return reduced(sub(mul(safe, log(safe)), mul(y, x)), r);
}

DistTensor nll_loss(const DistTensor& x, const DistTensor& targets, Reduction r,
                    const DistTensor& weight, int64_t ignore_index) {
  check_defined("nll_loss", {x, targets});
  DT_CHECK(x.ndim() >= 1, "nll_loss",
           "{} has no classes; pass log-probabilities [n, classes, ...], or "
           "[classes]",
           x.spec()->to_string());
  const int dim = x.ndim() == 1 ? 0 : 1;
  Shape wanted = x.shape();
  wanted.erase(dim);
  check_targets("nll_loss", x, targets, targets.shape() == wanted, wanted);
  check_weight("nll_loss", x, weight, x.size(dim));
  const DistTensor counts = counted(targets, ignore_index);
  const DistTensor here =
      logical_and(is_class(x, targets, dim), unsqueeze(counts, dim));
  const DistTensor w = weight.defined() ? along_dim(weight, x.ndim(), dim)
                                        : full({}, 1, x.mesh(), {}, x.dtype());
  const DistTensor weights = where(here, w, 0);
  const DistTensor loss = neg(sum(mul(weights, where(here, x, 0)), {dim}));
  if (r != Reduction::kMean) return reduced(loss, r);
  return div(sum(loss), sum(weights));
}

DistTensor poisson_nll_loss(const DistTensor& x, const DistTensor& y,
                            Reduction r, bool log_input, bool full,
                            double eps) {
  DistTensor loss =
      log_input ? sub(exp(x), mul(y, x)) : sub(x, mul(y, log(add(x, eps))));
  if (full) {
    const DistTensor large = gt(y, 1), safe = where(large, y, 1);
    const DistTensor stirling =
        add(sub(mul(safe, log(safe)), safe),
            mul(log(mul(safe, 2 * std::numbers::pi)), 0.5));
    loss = add(loss, where(large, stirling, 0));
  }
  return reduced(loss, r);
}

DistTensor gaussian_nll_loss(const DistTensor& x, const DistTensor& y,
                             const DistTensor& variance, Reduction r, bool full,
                             double eps) {
  check_defined("gaussian_nll_loss", {x, y, variance});
  DT_CHECK(eps > 0, "gaussian_nll_loss", "eps is {}; write a number above 0",
           eps);
  Shape rows = x.shape();
  if (!rows.empty()) rows.pop_back();
  const bool by_row = variance.shape() != x.shape() && variance.shape() == rows;
  const DistTensor given = by_row ? unsqueeze(variance, -1) : variance;
  // Raising to eps does not affect the gradient, as in torch.
  const DistTensor fixed = given.detach();
  const DistTensor v = add(given, sub(clamp_min(fixed, eps), fixed));
  const DistTensor loss = mul(add(log(v), div(square(sub(x, y)), v)), 0.5);
  return reduced(full ? add(loss, 0.5 * std::log(2 * std::numbers::pi)) : loss,
                 r);
}

DistTensor soft_margin_loss(const DistTensor& x, const DistTensor& y,
                            Reduction r) {
  return reduced(neg(logsigmoid(mul(y, x))), r);
}

DistTensor hinge_embedding_loss(const DistTensor& x, const DistTensor& y,
                                Reduction r, double margin) {
  // As in torch, an element whose y is neither 1 nor -1 gives both terms.
  const DistTensor far = clamp_min(sub(margin, x), 0);
  return reduced(add(where(ne(y, 1), far, 0), where(ne(y, -1), x, 0)), r);
}

DistTensor margin_ranking_loss(const DistTensor& a, const DistTensor& b,
                               const DistTensor& y, Reduction r,
                               double margin) {
  return reduced(clamp_min(sub(margin, mul(y, sub(a, b))), 0), r);
}

DistTensor cosine_embedding_loss(const DistTensor& a, const DistTensor& b,
                                 const DistTensor& y, Reduction r,
                                 double margin) {
  check_defined("cosine_embedding_loss", {a, b, y});
  DT_CHECK(a.shape() == b.shape() && a.ndim() == y.ndim() + 1 && y.ndim() <= 1,
           "cosine_embedding_loss",
           "{}, {} and targets {} do not fit each other; pass two tensors "
           "[b, n] and targets [b], or [n] and []",
           a.spec()->to_string(), b.spec()->to_string(), y.spec()->to_string());
  // As in torch, a small number is added to both squares.
  const auto squares = [](const DistTensor& x) {
    return add(sum(mul(x, x), {-1}), 1e-12);
  };
  const DistTensor cosine =
      div(sum(mul(a, b), {-1}), sqrt(mul(squares(a), squares(b))));
  return reduced(add(where(eq(y, 1), sub(1, cosine), 0),
                     where(eq(y, -1), clamp_min(sub(cosine, margin), 0), 0)),
                 r);
}

DistTensor triplet_margin_loss(const DistTensor& anchor,
                               const DistTensor& positive,
                               const DistTensor& negative, Reduction r,
                               const TripletOptions& o) {
  const auto distance = [&](const DistTensor& a, const DistTensor& b) {
    return pairwise_distance(a, b, o.p, o.eps);
  };
  DistTensor far = distance(anchor, negative);
  if (o.swap) far = minimum(far, distance(positive, negative));
  return reduced(
      clamp_min(add(sub(distance(anchor, positive), far), o.margin), 0), r);
}

DistTensor multi_margin_loss(const DistTensor& x, const DistTensor& targets,
                             Reduction r, int p, double margin,
                             const DistTensor& weight) {
  constexpr std::string_view op = "multi_margin_loss";
  check_defined(op, {x, targets});
  DT_CHECK(p == 1 || p == 2, op, "p is {}; write 1 or 2", p);
  const DistTensor rows = as_rows(op, x);
  const Shape batch{rows.size(0)};
  check_targets(
      op, x, targets,
      targets.shape() == batch || (x.ndim() < 2 && targets.ndim() == 0), batch);
  check_weight(op, x, weight, rows.size(1));
  const DistTensor y = reshape(targets, batch);
  const DistTensor own = gather(rows, 1, unsqueeze(y, 1));
  const DistTensor over = relu(add(sub(rows, own), margin));
  const DistTensor terms =
      where(is_class(rows, y), 0, p == 2 ? square(over) : over);
  const DistTensor loss = mean(terms, {1});
  return reduced(
      reshape(weight.defined() ? mul(loss, index_select(weight, 0, y)) : loss,
              targets.shape()),
      r);
}

DistTensor multilabel_margin_loss(const DistTensor& x,
                                  const DistTensor& targets, Reduction r) {
  constexpr std::string_view op = "multilabel_margin_loss";
  check_defined(op, {x, targets});
  check_targets(op, x, targets, targets.shape() == x.shape(), x.shape());
  const DistTensor rows = as_rows(op, x), y = as_rows(op, targets);
  const DistTensor listed = ge(cummin(y, 1).first, 0);
  const DistTensor index = where(listed, y, 0);
  const DistTensor own = gather(rows, 1, index);
  const DistTensor among = scatter_add(zeros_like(listed), 1, index, listed);
  // [b, target, class]
  const DistTensor over =
      relu(add(sub(unsqueeze(rows, 1), unsqueeze(own, 2)), 1));
  const DistTensor counts =
      logical_and(unsqueeze(listed, 2), unsqueeze(logical_not(among), 1));
  const DistTensor loss =
      div(sum(where(counts, over, 0), {1, 2}), rows.size(1));
  return reduced(x.ndim() < 2 ? reshape(loss, {}) : loss, r);
}

DistTensor multilabel_soft_margin_loss(const DistTensor& x, const DistTensor& y,
                                       Reduction r, const DistTensor& weight) {
  return reduced(
      mean(binary_cross_entropy_with_logits(x, y, Reduction::kNone, weight),
           {-1}),
      r);
}

DistTensor cosine_similarity(const DistTensor& x, const DistTensor& y, int dim,
                             double eps) {
  check_defined("cosine_similarity", {x, y});
  // Norms are taken after expand(), so that repeated elements count as often as
  // in the product.
  const Shape shape =
      broadcast_shapes(x.shape(), y.shape(), "cosine_similarity");
  const DistTensor a = expand(x, shape), b = expand(y, shape);
  auto size = [&](const DistTensor& x) {
    return maximum(vector_norm(x, 2, {dim}), eps);
  };
  return div(div(sum(mul(a, b), {dim}), size(a)), size(b));
}

DistTensor normalize(const DistTensor& x, double p, int dim, double eps) {
  return div(x, maximum(vector_norm(x, p, {dim}, true), eps));
}

}  // namespace dtensor
