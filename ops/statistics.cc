// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/sum_squares.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// Removes dimensions 0 and -1 from the list if x is a scalar. As in torch, a
// scalar may be reduced over them. Counts the others from the first dimension.
std::vector<int> known(std::string_view op, const DistTensor& x,
                       std::vector<int> dims) {
  if (x.ndim() == 0)
    std::erase_if(dims, [](int d) { return d == 0 || d == -1; });
  for (int& d : dims) d = normalize_dim(d, x.ndim(), op);
  return dims;
}

// The number of elements of x that are reduced to one element of the result.
int64_t count(const DistTensor& x, const std::vector<int>& dims) {
  if (dims.empty()) return numel(x.shape());
  int64_t n = 1;
  for (int d : dims) n *= x.size(d);
  return n;
}

bool empty_rows(const DistTensor& x, const std::vector<int>& dims) {
  return count(x, dims) == 0;
}

// x, converted to f32 unless it is a float type.
DistTensor floating(const DistTensor& x) {
  return is_float(x.dtype()) ? x : cast(x, DType::kF32);
}

DistTensor kept(const DistTensor& x, const std::vector<int>& dims, bool keepdim,
                const DistTensor& with_dims) {
  if (keepdim || x.ndim() == 0) return with_dims;
  Shape shape;
  std::vector<bool> gone(static_cast<size_t>(x.ndim()), dims.empty());
  for (int d : dims)
    gone[static_cast<size_t>(normalize_dim(d, x.ndim(), "reduce"))] = true;
  for (int d = 0; d < x.ndim(); ++d)
    if (!gone[static_cast<size_t>(d)]) shape.push_back(x.shape()[d]);
  return reshape(with_dims, shape);
}

}  // namespace

DistTensor any(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("any", x);
  dims = known("any", x, std::move(dims));
  const DistTensor is = cast(x, DType::kBool);
  if (empty_rows(x, dims)) return cast(sum(is, dims, keepdim), DType::kBool);
  return amax(is, dims, keepdim);
}

DistTensor all(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  check_defined("all", x);
  dims = known("all", x, std::move(dims));
  const DistTensor is = cast(x, DType::kBool);
  if (empty_rows(x, dims)) {
    return eq(sum(is, dims, keepdim), 0);
  }
  return amin(is, dims, keepdim);
}

DistTensor count_nonzero(const DistTensor& x, std::vector<int> dims) {
  check_defined("count_nonzero", x);
  return sum(cast(x, DType::kBool), known("count_nonzero", x, std::move(dims)));
}

DistTensor bincount(const DistTensor& x, const DistTensor& weights,
                    int64_t minlength) {
  check_defined("bincount", x);
  DT_CHECK(x.ndim() == 1 && !is_float(x.dtype()) && x.dtype() != DType::kBool,
           "bincount",
           "takes a vector of i32 or i64, but got {}; write flatten() and "
           "cast(x, DType::kI64)",
           x.spec()->to_string());
  DT_CHECK(minlength >= 0, "bincount", "minlength is {}; write 0 or more",
           minlength);
  if (weights.defined())
    DT_CHECK(weights.shape() == x.shape(), "bincount",
             "weights {} do not fit {}; pass one weight for each element",
             weights.spec()->to_string(), x.spec()->to_string());
  const int64_t largest = x.size(0) > 0 ? amax(x).item<int64_t>() : -1;
  const bool weighted = weights.defined() && x.size(0) > 0;
  const DistTensor each = !weighted ? cast(full_like(x, 1), DType::kI64)
                          : weights.dtype() == DType::kF32
                              ? weights
                              : cast(weights, DType::kF64);
  return index_add(
      full({std::max(largest + 1, minlength)}, 0, x.mesh(), {}, each.dtype()),
      0, x, each);
}

std::pair<DistTensor, DistTensor> aminmax(const DistTensor& x,
                                          std::vector<int> dims, bool keepdim) {
  check_defined("aminmax", x);
  dims = known("aminmax", x, std::move(dims));
  return {amin(x, dims, keepdim), amax(x, dims, keepdim)};
}

// var_mean(), whose errors name `op`.
static std::pair<DistTensor, DistTensor> variance(std::string_view op,
                                                  const DistTensor& x,
                                                  std::vector<int> dims,
                                                  double correction,
                                                  bool keepdim) {
  check_defined(op, x);
  DT_CHECK(is_float(x.dtype()), op, "{} has no variance; cast it to f32",
           x.spec()->to_string());
  dims = known(op, x, std::move(dims));
  const DistTensor middle = mean(x, dims, true);
  const double n =
      std::max(0.0, static_cast<double>(count(x, dims)) - correction);
  const DistTensor spread = sum_squares(sub(x, middle), dims, keepdim);
  return {div(spread, n), kept(x, dims, keepdim, middle)};
}

std::pair<DistTensor, DistTensor> var_mean(const DistTensor& x,
                                           std::vector<int> dims,
                                           double correction, bool keepdim) {
  return variance("var_mean", x, std::move(dims), correction, keepdim);
}

DistTensor var(const DistTensor& x, std::vector<int> dims, double correction,
               bool keepdim) {
  return variance("var", x, std::move(dims), correction, keepdim).first;
}

DistTensor stddev(const DistTensor& x, std::vector<int> dims, double correction,
                  bool keepdim) {
  return sqrt(
      variance("stddev", x, std::move(dims), correction, keepdim).first);
}

std::pair<DistTensor, DistTensor> std_mean(const DistTensor& x,
                                           std::vector<int> dims,
                                           double correction, bool keepdim) {
  auto [v, m] = variance("std_mean", x, std::move(dims), correction, keepdim);
  return {sqrt(v), m};
}

DistTensor logsumexp(const DistTensor& in, std::vector<int> dims,
                     bool keepdim) {
  check_defined("logsumexp", in);
  const DistTensor x = floating(in);
  dims = known("logsumexp", x, std::move(dims));
  if (empty_rows(x, dims)) return log(sum(x, dims, keepdim));
  // The difference of infinities is NaN, so rows with an infinite maximum are
  // not shifted.
  const DistTensor most = amax(x.detach(), dims, true);
  const DistTensor finite =
      lt(abs(most), std::numeric_limits<double>::infinity());
  const DistTensor shift = where(finite, most, 0);
  return add(log(sum(exp(sub(x, shift)), dims, keepdim)),
             kept(x, dims, keepdim, shift));
}

DistTensor vector_norm(const DistTensor& x, double p, std::vector<int> dims,
                       bool keepdim) {
  check_defined("vector_norm", x);
  DT_CHECK(is_float(x.dtype()), "vector_norm", "{} has no norm; cast it to f32",
           x.spec()->to_string());
  dims = known("vector_norm", x, std::move(dims));
  // As in torch, the result has a gradient, which is 0.
  if (p == 0) return sum(where(ne(x, 0), 1, mul(x, 0)), dims, keepdim);
  if (std::isinf(p))
    return p > 0 ? amax(abs(x), dims, keepdim) : amin(abs(x), dims, keepdim);
  if (p == 1) return sum(abs(x), dims, keepdim);
  // Below 1, the slope of the power at 0 is infinite, and that of the norm
  // counts as 0, as in torch.
  const auto powers = [&] {
    if (p > 1) return pow(abs(x), p);
    const DistTensor zero = eq(x, 0);
    return where(zero, std::pow(0.0, p), pow(where(zero, 1, abs(x)), p));
  };
  const DistTensor total =
      p == 2 ? sum_squares(x, dims, keepdim) : sum(powers(), dims, keepdim);
  // The slope of the root at 0 may be infinite. Where the sum is 0, insert a
  // constant, so that the gradient there is 0 instead of NaN.
  const DistTensor zero = eq(total, 0);
  const DistTensor safe = where(zero, 1, total);
  const DistTensor root = p == 2 ? sqrt(safe) : pow(safe, 1 / p);
  const double at_zero = p < 0 ? std::pow(0.0, 1 / p) : 0;
  return where(zero, at_zero, root);
}

DistTensor nansum(const DistTensor& x, const std::vector<int>& dims,
                  bool keepdim) {
  check_defined("nansum", x);
  return sum(is_float(x.dtype()) ? where(isnan(x), 0, x) : x,
             known("nansum", x, dims), keepdim);
}

DistTensor nanmean(const DistTensor& x, const std::vector<int>& dims,
                   bool keepdim) {
  check_defined("nanmean", x);
  DT_CHECK(is_float(x.dtype()), "nanmean", "{} has no mean; cast it to f32",
           x.spec()->to_string());
  const DistTensor counts = logical_not(isnan(x));
  return div(nansum(x, dims, keepdim),
             sum(counts, known("nanmean", x, dims), keepdim));
}

DistTensor cov(const DistTensor& given, double correction,
               const DistTensor& fweights, const DistTensor& aweights) {
  check_defined("cov", given);
  DT_CHECK(given.ndim() <= 2, "cov",
           "{} has more than two dimensions; pass [variables, observations]",
           given.spec()->to_string());
  DistTensor x = floating(given);
  if (x.ndim() < 2) x = reshape(x, {1, numel(x.shape())});
  const int64_t n = x.size(1);
  for (const DistTensor& w : {fweights, aweights})
    if (w.defined())
      DT_CHECK(w.shape() == Shape{n}, "cov",
               "the weights {} do not fit {}; pass one for each of {} "
               "observations",
               w.spec()->to_string(), given.spec()->to_string(), n);
  DT_CHECK(!fweights.defined() || !is_float(fweights.dtype()), "cov",
           "fweights are {}, but must be integers; pass them as aweights",
           fweights.spec()->to_string());
  DT_CHECK(!aweights.defined() || is_float(aweights.dtype()), "cov",
           "aweights are {}, but must be floats; pass them as fweights",
           aweights.spec()->to_string());
  const DistTensor w = !fweights.defined()   ? aweights
                       : !aweights.defined() ? fweights
                                             : mul(fweights, aweights);
  if (!w.defined()) {
    const DistTensor far = sub(x, mean(x, {1}, true));
    return squeeze(div(matmul(far, transpose(far)),
                       std::max(0.0, static_cast<double>(n) - correction)));
  }
  const DistTensor total = cast(sum(w), x.dtype());
  const DistTensor far = sub(x, div(sum(mul(x, w), {1}, true), total));
  const DistTensor divisor =
      aweights.defined()
          ? sub(total, mul(div(sum(mul(w, aweights)), total), correction))
          : sub(total, correction);
  return squeeze(
      div(matmul(mul(far, w), transpose(far)), clamp_min(divisor, 0)));
}

DistTensor corrcoef(const DistTensor& x) {
  const DistTensor c = cov(x);
  if (c.ndim() == 0) return div(c, c);
  const DistTensor scale = sqrt(einsum("ii->i", c));
  return clamp(div(div(c, unsqueeze(scale, 1)), scale), -1, 1);
}

// ---- Masks ----

namespace {

void check_mask(std::string_view op, const DistTensor& x,
                const DistTensor& mask) {
  check_defined(op, x);
  if (mask.defined())
    DT_CHECK(mask.dtype() == DType::kBool &&
                 broadcast_shapes(mask.shape(), x.shape(), op) == x.shape(),
             op,
             "the mask {} does not fit {}; pass a mask of bool that broadcasts "
             "to it",
             mask.spec()->to_string(), x.spec()->to_string());
}

// x, with the number that a maximum ignores where the mask is false.
DistTensor lowest_outside(std::string_view op, const DistTensor& x,
                          const DistTensor& mask) {
  check_mask(op, x, mask);
  if (!mask.defined()) return x;
  switch (x.dtype()) {
    case DType::kBool:
      return logical_and(x, mask);
    case DType::kI8:
      return where(mask, x, std::numeric_limits<int8_t>::lowest());
    case DType::kI32:
      return where(mask, x, std::numeric_limits<int32_t>::lowest());
    case DType::kI64:
      return where(mask, x, std::numeric_limits<int64_t>::lowest());
    default:
      return where(mask, x, -std::numeric_limits<double>::infinity());
  }
}

// The number of elements for which the mask is true.
DistTensor counted(const DistTensor& x, const DistTensor& mask,
                   const std::vector<int>& dims, bool keepdim) {
  if (!mask.defined())
    return full({}, static_cast<double>(count(x, dims)), x.mesh(), {},
                DType::kI64);
  return sum(expand(mask, x.shape()), dims, keepdim);
}

}  // namespace

DistTensor masked_sum(const DistTensor& x, const DistTensor& mask,
                      const std::vector<int>& dims, bool keepdim) {
  check_mask("masked_sum", x, mask);
  return sum(mask.defined() ? where(expand(mask, x.shape()), x, 0) : x,
             known("masked_sum", x, dims), keepdim);
}

DistTensor masked_mean(const DistTensor& x, const DistTensor& mask,
                       const std::vector<int>& dims, bool keepdim) {
  check_mask("masked_mean", x, mask);
  return div(masked_sum(x, mask, dims, keepdim),
             counted(x, mask, known("masked_mean", x, dims), keepdim));
}

DistTensor masked_var(const DistTensor& given, const DistTensor& mask,
                      const std::vector<int>& dims, double correction,
                      bool keepdim) {
  check_mask("masked_var", given, mask);
  const DistTensor x = floating(given);
  const DistTensor far = sub(x, masked_mean(x, mask, dims, true));
  const DistTensor n = counted(x, mask, known("masked_var", x, dims), keepdim);
  const DistTensor divisor =
      clamp_min(sub(cast(n, DType::kF64), correction), 0);
  return cast(div(masked_sum(square(far), mask, dims, keepdim), divisor),
              x.dtype());
}

DistTensor masked_amax(const DistTensor& x, const DistTensor& mask,
                       const std::vector<int>& dims, bool keepdim) {
  return amax(lowest_outside("masked_amax", x, mask), dims, keepdim);
}

DistTensor masked_softmax(const DistTensor& x, const DistTensor& mask,
                          int dim) {
  return softmax(lowest_outside("masked_softmax", x, mask), dim);
}

DistTensor masked_log_softmax(const DistTensor& x, const DistTensor& mask,
                              int dim) {
  return log_softmax(lowest_outside("masked_log_softmax", x, mask), dim);
}

DistTensor masked_logsumexp(const DistTensor& x, const DistTensor& mask,
                            const std::vector<int>& dims, bool keepdim) {
  return cast(
      logsumexp(lowest_outside("masked_logsumexp", x, mask), dims, keepdim),
      x.dtype());
}

}  // namespace dtensor
