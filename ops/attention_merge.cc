// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attention_merge.h"

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/redistribute.h"

namespace dtensor::internal {
namespace {

// out = f(a, b), element by element; out may be a.
template <class F>
void apply_to(Compute& c, const Tensor& a, const Tensor& b, const Tensor& out) {
  c.run(kernels::Binary{.index = fn::index_of<F>,
                        .of = {.type = a.dtype(),
                               .shape = out.shape(),
                               .out = out.mutable_data(),
                               .in = {a.data(), b.data()},
                               .strides = {a.strides(), b.strides()}}});
}

// exp(a - b), with a's shape.
Tensor exp_of_difference(Compute& c, const Tensor& a, const Tensor& b) {
  const Tensor y = c.scratch(a.shape(), a.dtype());
  apply_to<fn::Sub>(c, a, b, y);
  c.run(kernels::Unary{.index = fn::index_of<fn::Exp>,
                       .of = {.type = y.dtype(),
                              .shape = y.shape(),
                              .out = y.mutable_data(),
                              .in = {y.data()},
                              .strides = {y.strides()}}});
  return y;
}

// Replaces minus infinity, the lse of a query without a key, by a finite
// number. exp_of_difference() then gives the weight 0 instead of NaN.
Tensor finite_of(Compute& c, const Tensor& lse) {
  const Tensor y = c.scratch(lse.shape(), lse.dtype());
  Shape ones = lse.shape();
  for (int64_t& n : ones) n = 1;
  apply_to<fn::Maximum>(
      c, lse, Tensor::full(ones, lse.dtype(), -1e30).expand(lse.shape()), y);
  return y;
}

// A view of `weight` [b, h, s] in the shape of x [b, s, h, d]. Along d, it
// repeats one number.
Tensor for_rows(const Tensor& weight, const Tensor& x) {
  const Shape& w = weight.strides();
  return weight.as_strided(x.shape(), {w[0], w[2], w[1], 0});
}

}  // namespace

void Sum::add(Compute& c, const Tensor& part) {
  const Tensor x = converted(part, kernels::stat_of(part.dtype()));
  if (!total.defined())
    total = x.to_contiguous();
  else
    apply_to<fn::Add>(c, total, x, total);
}

Tensor Sum::as(DType type, const Shape& shape) const {
  return total.defined() ? converted(total, type)
                         : Tensor::full(shape, type, 0);
}

Tensor joined(const std::vector<Sum>& parts, const IntervalList& ranges,
              const Shape& shape, DType type) {
  if (parts.size() == 1) return parts[0].as(type, shape);
  Tensor all = Tensor::empty(shape, type);
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    Tensor to = all.slice(1, at, at + ranges[i].size());
    to.copy_from(parts[i].as(type, to.shape()));
    at += ranges[i].size();
  }
  return all;
}

void Online::add(Compute& c, const Tensor& part, const Tensor& part_lse) {
  const Tensor x = converted(part, part_lse.dtype());
  if (!out.defined()) {
    out = x;
    lse = part_lse;
    return;
  }
  const Tensor both = c.scratch(lse.shape(), lse.dtype());
  apply_to<fn::LogAddExp>(c, lse, part_lse, both);
  const Tensor finite = finite_of(c, both);
  scale_rows(c, out, exp_of_difference(c, lse, finite));
  scale_rows(c, x, exp_of_difference(c, part_lse, finite));
  apply_to<fn::Add>(c, out, x, out);
  lse = both;
}

Tensor share_of_rank(Compute& c, const Tensor& all, int64_t which) {
  const auto of = [&](int64_t i) {
    return all.slice(0, i, i + 1).to_contiguous();
  };
  const Tensor sum = of(0).clone();
  for (int64_t i = 1; i < all.shape()[0]; ++i)
    apply_to<fn::LogAddExp>(c, sum, of(i), sum);
  return exp_of_difference(c, of(which), finite_of(c, sum));
}

void scale_rows(Compute& c, const Tensor& out, const Tensor& weight) {
  apply_to<fn::Mul>(c, out, for_rows(weight, out), out);
}

Tensor equal(Compute& c, const Tensor& a, const Tensor& b) {
  const Tensor y = c.scratch(a.shape(), DType::kBool);
  apply_to<fn::Eq>(c, a, b, y);
  return y;
}

}  // namespace dtensor::internal
