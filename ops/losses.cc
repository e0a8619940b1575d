// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/losses.h"

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

DistTensor reduced(const DistTensor& loss, Reduction r) {
  switch (r) {
    case Reduction::kNone:
      return loss;
    case Reduction::kMean:
      return mean(loss);
    case Reduction::kSum:
      return sum(loss);
    case Reduction::kBatchMean:
      DT_CHECK(loss.ndim() > 0, "loss",
               "the mean over a batch needs a dimension; write kSum");
      return div(sum(loss), loss.size(0));
  }
  return loss;
}

DistTensor weighted(const DistTensor& loss, const DistTensor& weight) {
  return weight.defined() ? mul(loss, weight) : loss;
}

}  // namespace

DistTensor mse_loss(const DistTensor& x, const DistTensor& y, Reduction r) {
  return reduced(square(sub(x, y)), r);
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
  DT_CHECK(x.ndim() >= 1 && targets.ndim() == x.ndim() - 1, "nll_loss",
           "targets {} do not fit {}; pass log-probabilities [n, classes, ...] "
           "and targets [n, ...], or [classes] and []",
           targets.spec()->to_string(), x.spec()->to_string());
  const int dim = x.ndim() == 1 ? 0 : 1;
  Shape along = Shape::filled(x.ndim(), 1);
  along[dim] = x.size(dim);
  const DistTensor classes =
      reshape(arange(x.size(dim), x.mesh(), {}, targets.dtype()), along);
  const DistTensor counts =
      ne(targets, full({}, static_cast<double>(ignore_index), targets.mesh(),
                       {}, targets.dtype()));
  const DistTensor here =
      logical_and(eq(unsqueeze(targets, dim), classes), unsqueeze(counts, dim));
  const DistTensor w = weight.defined() ? reshape(weight, along)
                                        : full({}, 1, x.mesh(), {}, x.dtype());
  const DistTensor weights = where(here, w, 0);
  const DistTensor loss = neg(sum(mul(weights, where(here, x, 0)), {dim}));
  if (r != Reduction::kMean) return reduced(loss, r);
  return div(sum(loss), sum(weights));
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
