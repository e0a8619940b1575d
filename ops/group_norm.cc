// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>
#include <vector>

#include "dtensor/ops/composed.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// [channels] as [channels, 1, ...], to broadcast to x.
DistTensor over_channels(const DistTensor& w, const DistTensor& x) {
  return along_dim(w, x.ndim() - 1, 0);
}

void check_channels(std::string_view op, const DistTensor& x,
                    std::initializer_list<DistTensor> vectors) {
  check_defined(op, x);
  DT_CHECK(x.ndim() >= 2, op,
           "{} has no channels; pass a tensor [b, channels, space...]",
           x.spec()->to_string());
  DT_CHECK(is_float(x.dtype()), op, "{} has no mean; cast it to f32",
           x.spec()->to_string());
  for (const DistTensor& w : vectors)
    DT_CHECK(!w.defined() || w.shape() == Shape{x.size(1)}, op,
             "the vector {} does not fit {}; pass one of size {}",
             w.spec()->to_string(), x.spec()->to_string(), x.size(1));
}

// The dimensions of x from `first` on.
std::vector<int> dims_from(int first, const DistTensor& x) {
  std::vector<int> dims;
  for (int d = first; d < x.ndim(); ++d) dims.push_back(d);
  return dims;
}

// y * gamma + beta, if they are given, in this type.
DistTensor affine(DistTensor y, const DistTensor& gamma, const DistTensor& beta,
                  DType type) {
  if (gamma.defined() && beta.defined())
    y = addcmul(beta, y, gamma);
  else if (gamma.defined())
    y = mul(y, gamma);
  else if (beta.defined())
    y = add(y, beta);
  return cast(y, type);
}
DistTensor channels_affine(const DistTensor& y, const DistTensor& gamma,
                           const DistTensor& beta, DType type) {
  const auto along = [&](const DistTensor& w) {
    return w.defined() ? over_channels(w, y) : w;
  };
  return affine(y, along(gamma), along(beta), type);
}

// x as [b, groups, channels of a group, space...].
DistTensor grouped(std::string_view op, const DistTensor& x, int64_t groups) {
  DT_CHECK(groups >= 1 && x.size(1) % groups == 0, op,
           "{} groups do not divide the {} channels of {}; write a divisor of "
           "{}",
           groups, x.size(1), x.spec()->to_string(), x.size(1));
  return unflatten(x, 1, {groups, x.size(1) / groups});
}

// Halves have too few digits for statistics over many elements.
DistTensor wide(const DistTensor& x) {
  return is_half_float(x.dtype()) ? cast(x, DType::kF32) : x;
}

// (x - mean) * rstd over these dimensions, and the variance. Halves give f32.
std::pair<NormWithStats, DistTensor> standardized(const DistTensor& given,
                                                  const std::vector<int>& dims,
                                                  double eps) {
  const DistTensor x = wide(given);
  const auto [variance, mean] = var_mean(x, dims, 0, true);
  const DistTensor rstd = rsqrt(add(variance, eps));
  return {{mul(sub(x, mean), rstd), mean, rstd}, variance};
}

// batch_norm() and instance_norm() by the statistics of x over `dims`.
RunningNorm by_own(std::string_view op, const DistTensor& given,
                   const std::vector<int>& dims, const DistTensor& running_mean,
                   const DistTensor& running_var, const DistTensor& gamma,
                   const DistTensor& beta, double momentum, double eps) {
  int64_t n = 1;
  for (int d : dims) n *= given.size(d);
  DT_CHECK(n != 1, op,
           "{} has no variance, because each mean is over one element; pass "
           "more elements, or use the running statistics",
           given.spec()->to_string());
  const auto [norm, variance] = standardized(given, dims, eps);
  const auto next = [&](const DistTensor& running, const DistTensor& now,
                        double factor) {
    if (!running.defined()) return running;
    const Shape sets{now.size(0), now.size(1)};
    return cast(
        add(mul(running.detach(), 1 - momentum),
            mul(mean(reshape(now.detach(), sets), {0}), momentum * factor)),
        running.dtype());
  };
  const auto count = static_cast<double>(n);
  return {channels_affine(norm.y, gamma, beta, given.dtype()),
          next(running_mean, norm.mean, 1),
          next(running_var, variance, count / (count - 1))};
}

RunningNorm by_running(std::string_view op, const DistTensor& x,
                       const DistTensor& running_mean,
                       const DistTensor& running_var, const DistTensor& gamma,
                       const DistTensor& beta, double eps) {
  DT_CHECK(running_mean.defined() && running_var.defined(), op,
           "the running mean and variance are not given; pass them, or have "
           "those of the input taken");
  const DistTensor rstd = rsqrt(add(wide(running_var), eps));
  const DistTensor y =
      mul(sub(wide(x), over_channels(running_mean, x)), over_channels(rstd, x));
  return {channels_affine(y, gamma, beta, x.dtype()), running_mean,
          running_var};
}

}  // namespace

DistTensor group_norm(const DistTensor& x, int64_t groups,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps) {
  check_channels("group_norm", x, {gamma, beta});
  const DistTensor rows = grouped("group_norm", x, groups);
  const DistTensor y = layer_norm(flatten(rows, 2, -1), {}, {}, eps);
  return channels_affine(reshape(y, x.shape()), gamma, beta, x.dtype());
}

RunningNorm batch_norm(const DistTensor& x, const DistTensor& running_mean,
                       const DistTensor& running_var, const DistTensor& gamma,
                       const DistTensor& beta, bool training, double momentum,
                       double eps) {
  // As in torch, an empty vector needs no channels.
  if (x.defined() && x.shape() == Shape{0})
    return {alias(x), running_mean, running_var};
  check_channels("batch_norm", x, {running_mean, running_var, gamma, beta});
  if (!training)
    return by_running("batch_norm", x, running_mean, running_var, gamma, beta,
                      eps);
  std::vector<int> dims = dims_from(2, x);
  dims.insert(dims.begin(), 0);
  return by_own("batch_norm", x, dims, running_mean, running_var, gamma, beta,
                momentum, eps);
}

RunningNorm instance_norm(const DistTensor& x, const DistTensor& running_mean,
                          const DistTensor& running_var,
                          const DistTensor& gamma, const DistTensor& beta,
                          bool use_input_stats, double momentum, double eps) {
  check_channels("instance_norm", x, {running_mean, running_var, gamma, beta});
  if (!use_input_stats)
    return by_running("instance_norm", x, running_mean, running_var, gamma,
                      beta, eps);
  return by_own("instance_norm", x, dims_from(2, x), running_mean, running_var,
                gamma, beta, momentum, eps);
}

DistTensor local_response_norm(const DistTensor& x, int64_t size, double alpha,
                               double beta, double k) {
  check_defined("local_response_norm", x);
  DT_CHECK(
      x.ndim() >= 3, "local_response_norm",
      "{} has no channels and space; pass a tensor [b, channels, space...]",
      x.spec()->to_string());
  DT_CHECK(size >= 1, "local_response_norm",
           "size is {}; write the number of channels in a window, at least 1",
           size);
  if (numel(x.shape()) == 0) return mul(x, 1.0);
  // A window of even size reaches one channel further down than up, so the
  // last window of the pool is left out.
  const DistTensor rows = flatten(x, 2, -1);
  const DistTensor means =
      squeeze(avg_pool2d(unsqueeze(square(rows), 1), {size, 1},
                         {.stride = {1}, .padding = {size / 2, 0}}),
              1);
  const DistTensor scale =
      pow(add(mul(narrow(means, 1, 0, x.size(1)), alpha), k), beta);
  return div(x, reshape(scale, x.shape()));
}

NormWithStats native_layer_norm(const DistTensor& x, const Shape& sizes,
                                const DistTensor& gamma, const DistTensor& beta,
                                double eps) {
  check_defined("native_layer_norm", x);
  const int n = sizes.size();
  DT_CHECK(n >= 1 && n <= x.ndim(), "native_layer_norm",
           "the sizes {} are not those of the last dimensions of {}; pass at "
           "least one, and at most {}",
           to_string(sizes), x.spec()->to_string(), x.ndim());
  for (int d = 1; d <= n; ++d)
    DT_CHECK(x.size(-d) == sizes[n - d], "native_layer_norm",
             "the sizes {} are not those of the last dimensions of {}; write "
             "{} in place of {}",
             to_string(sizes), x.spec()->to_string(), x.size(-d), sizes[n - d]);
  for (const DistTensor& w : {gamma, beta})
    DT_CHECK(!w.defined() || w.shape() == sizes, "native_layer_norm",
             "the weight {} does not fit the sizes {}; pass one of this shape",
             w.spec()->to_string(), to_string(sizes));
  NormWithStats norm = standardized(x, dims_from(x.ndim() - n, x), eps).first;
  norm.y = affine(norm.y, gamma, beta, x.dtype());
  return norm;
}

NormWithStats native_group_norm(const DistTensor& x, int64_t groups,
                                const DistTensor& gamma, const DistTensor& beta,
                                double eps) {
  check_channels("native_group_norm", x, {gamma, beta});
  const DistTensor rows = grouped("native_group_norm", x, groups);
  const NormWithStats norm = standardized(rows, dims_from(2, rows), eps).first;
  const Shape sets{x.size(0), groups};
  return {channels_affine(reshape(norm.y, x.shape()), gamma, beta, x.dtype()),
          reshape(norm.mean, sets), reshape(norm.rstd, sets)};
}

}  // namespace dtensor
