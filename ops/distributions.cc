// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/linalg.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The layout of numbers that are made for x.
Layout whole(const DistTensor& x) {
  Layout layout = x.layout();
  layout.partials.clear();
  return layout;
}

// The type in which numbers are drawn that are rounded to t: f16 and bf16 have
// too few bits for a distribution's tail.
DType drawn_in(DType t) { return t == DType::kF64 ? t : DType::kF32; }

DistTensor channels(std::string_view op, int space, const DistTensor& x,
                    double p, Generator g) {
  check_defined(op, x);
  DT_CHECK(x.ndim() == space + 1 || x.ndim() == space + 2, op,
           "x is {}; pass [n, channels, ...] or [channels, ...], with {} "
           "dimensions behind the channels",
           x.spec()->to_string(), space);
  // One number for each channel, on the ranks that hold the channel.
  Shape shape = x.shape();
  Layout layout = whole(x);
  for (int d = x.ndim() - space; d < x.ndim(); ++d) {
    shape[d] = 1;
    layout.dims[static_cast<size_t>(d)] = Dim(1);
  }
  const DistTensor each = full(shape, 1, x.mesh(), layout, x.dtype());
  return mul(x, dropout(each, p, g));
}

}  // namespace

DistTensor rand(const Shape& shape, const Mesh& mesh, const Placements& layout,
                DType t, Generator g) {
  return uniform(shape, mesh, layout, t, g);
}

DistTensor rand_like(const DistTensor& x, Generator g) {
  check_defined("rand_like", x);
  return uniform(x.shape(), x.mesh(), whole(x), x.dtype(), g);
}

DistTensor randn_like(const DistTensor& x, Generator g) {
  check_defined("randn_like", x);
  return randn(x.shape(), x.mesh(), whole(x), x.dtype(), g);
}

DistTensor randint_like(const DistTensor& x, int64_t lo, int64_t hi,
                        Generator g) {
  check_defined("randint_like", x);
  return randint(lo, hi, x.shape(), x.mesh(), whole(x), x.dtype(), g);
}

DistTensor randperm(int64_t n, const Mesh& mesh, const Placements& layout,
                    DType t, Generator g) {
  DT_CHECK(n >= 0, "randperm", "n is {}; write 0 or more", n);
  DT_CHECK(t == DType::kI32 || t == DType::kI64, "randperm",
           "the type is {}; write DType::kI32 or DType::kI64", name(t));
  constexpr int64_t kMost = int64_t{1} << 53;
  const DistTensor keys =
      randint(-kMost, kMost, {n}, mesh, layout, DType::kI64, g);
  return cast(argsort(keys), t).redistribute(layout);
}

DistTensor bernoulli(const DistTensor& p, Generator g) {
  check_defined("bernoulli", p);
  DT_CHECK(is_float(p.dtype()), "bernoulli",
           "the probabilities are {}; cast them to f32", p.spec()->to_string());
  const DType t = drawn_in(p.dtype());
  const DistTensor u = uniform(p.shape(), p.mesh(), whole(p), t, g);
  return cast(lt(u, cast(p.detach(), t)), p.dtype());
}

DistTensor normal(const DistTensor& mean, const DistTensor& std, Generator g) {
  check_defined("normal", {mean, std});
  // One draw for each element of the result, not for one that repeats.
  const DistTensor scale =
      expand(std, broadcast_shapes(mean.shape(), std.shape(), "normal"));
  return add(mean, mul(scale, randn_like(scale, g)));
}

DistTensor normal(const DistTensor& mean, double std, Generator g) {
  check_defined("normal", mean);
  return add(mean, mul(randn_like(mean, g), std));
}

DistTensor normal(double mean, const DistTensor& std, Generator g) {
  check_defined("normal", std);
  return add(mul(std, randn_like(std, g)), mean);
}

DistTensor exponential(const Shape& shape, const Mesh& mesh,
                       const Placements& layout, DType t, Generator g,
                       double rate) {
  DT_CHECK(is_float(t), "exponential",
           "cannot draw floats of type {}; write DType::kF32", name(t));
  DT_CHECK(rate > 0, "exponential", "the rate is {}; write a number above 0",
           rate);
  const DistTensor u = uniform(shape, mesh, layout, drawn_in(t), g);
  return cast(div(log1p(neg(u)), -rate), t);
}

DistTensor trunc_normal(const Shape& shape, const Mesh& mesh,
                        const Placements& layout, DType t, Generator g,
                        double mean, double std, double lo, double hi) {
  DT_CHECK(is_float(t), "trunc_normal",
           "cannot draw floats of type {}; write DType::kF32", name(t));
  DT_CHECK(std > 0 && lo < hi, "trunc_normal",
           "std is {} and the range is [{}, {}]; write a std above 0 and lo < "
           "hi",
           std, lo, hi);
  const auto erf_of = [&](double end) {
    return std::erf((end - mean) / std / std::sqrt(2));
  };
  const DistTensor u =
      uniform(shape, mesh, layout, drawn_in(t), g, erf_of(lo), erf_of(hi));
  const DistTensor x = add(mul(erfinv(u), std * std::sqrt(2)), mean);
  return cast(clamp(x, lo, hi), t);
}

DistTensor orthogonal(const Shape& shape, const Mesh& mesh,
                      const Placements& layout, DType t, Generator g,
                      double gain) {
  DT_CHECK(shape.size() >= 2 && (t == DType::kF32 || t == DType::kF64),
           "orthogonal",
           "cannot make {} of type {}; write two or more sizes, and "
           "DType::kF32 or kF64",
           to_string(shape), name(t));
  const int64_t rows = shape[0], columns = rows == 0 ? 0 : numel(shape) / rows;
  const bool wide = rows < columns;
  const Shape tall = wide ? Shape{columns, rows} : Shape{rows, columns};
  const Qr f = qr(randn(tall, mesh, {}, t, g));
  // The sign of r's diagonal makes the factor unique.
  const DistTensor q = mul(f.q, mul(sign(diagonal(f.r)), gain));
  return reshape(wide ? transpose(q) : q, shape).redistribute(layout);
}

DistTensor dropout1d(const DistTensor& x, double p, Generator g) {
  return channels("dropout1d", 1, x, p, g);
}
DistTensor dropout2d(const DistTensor& x, double p, Generator g) {
  return channels("dropout2d", 2, x, p, g);
}
DistTensor dropout3d(const DistTensor& x, double p, Generator g) {
  return channels("dropout3d", 3, x, p, g);
}

DistTensor alpha_dropout(const DistTensor& x, double p, Generator g) {
  check_defined("alpha_dropout", x);
  DT_CHECK(p >= 0 && p < 1, "alpha_dropout",
           "p is {}; write a probability in [0, 1)", p);
  constexpr double kLowest = -1.7580993408473766;  // -scale * alpha of selu
  const double scale = 1 / std::sqrt((1 - p) * (1 + p * kLowest * kLowest));
  const DistTensor kept = ne(dropout(ones_like(x.detach()), p, g), 0);
  return add(mul(where(kept, x, kLowest), scale), -scale * kLowest * p);
}

}  // namespace dtensor
