// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/composed.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/function_node.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/norm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pool.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

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

struct StandardizedArgs {
  static constexpr Fields kFields = {"dims"};
  Shape dims;  // over which the mean is taken, in ascending order
};

// The two passes over the elements in the gradient of (x - mean) * rstd, where
// mean and rstd are those of x over some dimensions, "abcd" without "acd":
//   dy, x, mean, rstd -> the sums s1 of dy, and s2 of dy * (x - mean) * rstd
//   dy, x, mean, rstd, s1, s2 -> dx
class StandardizedBackward : public Op {
 public:
  explicit StandardizedBackward(bool sums)
      : Op(sums ? "standardized_sums" : "standardized_backward",
           {.differentiable = false}),
        sums_(sums) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    std::string x, set;
    for (int d = 0; d < shapes[0].size(); ++d) {
      x += static_cast<char>('a' + d);
      if (!reduced(attrs, d)) set += x.back();
    }
    const std::string rule =
        sums_ ? "{0},{0},{1},{1}->{1},{1} | linear 0"
              : "{0},{0},{1},{1},{1},{1}->{0} | linear 0,4,5";
    return BoundRule(Rule(fmt::format(fmt::runtime(rule), x, set)), shapes,
                     name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in);
    DT_CHECK(!is_half_float(in[0]), name(), "takes f32 or f64, but got {}",
             dtensor::name(in[0]));
    return std::vector(sums_ ? 2 : 1, in[0]);
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const auto& [x, set, dims] : std::vector<std::array<Shape, 3>>{
             {{{2, 3, 5}, {3}, {0, 2}}}, {{{5, 3, 2}, {5}, {1, 2}}}}) {
      Sample s;
      s.inputs = {{x}, {x}, {set}, {set, SampleInput::Values::kPositive}};
      if (!sums_) s.inputs.insert(s.inputs.end(), 2, {set});
      s.attrs = StandardizedArgs{dims};
      list.push_back(s);
    }
    return list;
  }

  void compute(Compute& c) const override {
    const Tensor dy = c.in[0].to_contiguous(), x = c.in[1].to_contiguous();
    // Rows of the last dimensions over which the mean is taken. Several rows
    // may have the same mean.
    int first = x.ndim();
    while (first > 0 && reduced(c.attrs, first - 1)) --first;
    Shape rows, sets;
    uint32_t same = 0;
    for (int d = 0; d < first; ++d) {
      const bool one = reduced(c.attrs, d);
      rows.push_back(x.shape()[d]);
      sets.push_back(one ? 1 : x.shape()[d]);
      if (one) same |= 1u << d;
    }
    const auto of_rows = [&](size_t i) {
      return c.in[i].reshape(sets).expand(rows).to_contiguous();
    };
    const int64_t count = numel(rows),
                  n = x.numel() / std::max<int64_t>(count, 1);
    const Tensor ones = c.scratch({n}, x.dtype()), mean = of_rows(2),
                 rstd = of_rows(3);
    ones.fill(1);
    const auto matrix = [&](const Tensor& t) {
      return kernels::Matrix{t.dtype(), count, n, t.data(), n};
    };
    const kernels::Norm norm{.x = matrix(x),
                             .gamma = ones.data(),
                             .mean = mean.data(),
                             .rstd = rstd.data(),
                             .dy = matrix(dy)};
    if (!sums_) {
      const Tensor s1 = of_rows(4), s2 = of_rows(5);
      const auto all = [&](size_t i) {
        return static_cast<double>(numel(c.decision.in[i]->shape()));
      };
      return c.run(kernels::NormBackwardApply{.of = norm,
                                              .s1 = s1.data(),
                                              .s2 = s2.data(),
                                              .inv_n = all(2) / all(0),
                                              .dx = c.out[0].mutable_data()});
    }
    const Tensor sums[] = {c.scratch(rows, x.dtype()),
                           c.scratch(rows, x.dtype())};
    c.run(kernels::NormBackwardSums{.of = norm,
                                    .s1 = sums[0].mutable_data(),
                                    .s2 = sums[1].mutable_data()});
    for (size_t i = 0; i < 2; ++i)
      c.run(kernels::Reduce{.type = x.dtype(),
                            .shape = rows,
                            .in = sums[i].data(),
                            .strides = sums[i].strides(),
                            .dims = same,
                            .out = c.out[i].mutable_data()});
  }

 private:
  static bool reduced(const Attrs& attrs, int d) {
    const Shape& dims = attrs.as<StandardizedArgs>().dims;
    return std::find(dims.begin(), dims.end(), d) != dims.end();
  }

  bool sums_;
};

const Op& backward_op(bool sums) {
  static const StandardizedBackward apply(false), total(true);
  return sums ? total : apply;
}

// The gradient of standardized(), from the cotangents of y, mean and rstd, of
// which some are undefined: dx = rstd * dy + slope * y + shift, where slope and
// shift are as small as rstd. If only dy is defined, and rows are long, two
// passes over the elements do.
DistTensor standardized_gradient(const DistTensor& x,
                                 std::span<const DistTensor> results,
                                 std::span<const DistTensor> cotangents,
                                 const std::vector<int>& dims) {
  const DistTensor &y = results[0], &rstd = results[2];
  const DistTensor &dy = cotangents[0], &dmean = cotangents[1],
                   &drstd = cotangents[2];
  const double inv_n = static_cast<double>(numel(rstd.shape())) /
                       static_cast<double>(numel(y.shape()));
  int64_t row = 1;
  for (int d = x.ndim(); d-- > 0 && rstd.size(d) == 1;) row *= x.size(d);
  if (row >= 16 && !dmean.defined() && !drstd.defined() && !grad_enabled() &&
      !reproducible(x.dtype())) {
    StandardizedArgs args;
    Shape sets;
    for (int d = 0; d < x.ndim(); ++d)
      if (std::find(dims.begin(), dims.end(), d) != dims.end())
        args.dims.push_back(d);
      else
        sets.push_back(x.size(d));
    std::vector<DistTensor> in{dy, x, reshape(results[1], sets),
                               reshape(rstd, sets)};
    for (const DistTensor& sum : apply(backward_op(true), in, args))
      in.push_back(sum);
    return apply1(backward_op(false), in, args);
  }
  DistTensor slope, shift;
  const auto add_to = [](DistTensor& sum, const DistTensor& term) {
    sum = sum.defined() ? add(sum, term) : term;
  };
  if (dy.defined()) {
    slope = neg(mul(rstd, mean(mul(dy, y), dims, true)));
    shift = neg(mul(rstd, mean(dy, dims, true)));
  }
  if (dmean.defined()) add_to(shift, mul(dmean, inv_n));
  if (drstd.defined()) add_to(slope, mul(mul(drstd, square(rstd)), -inv_n));
  if (!slope.defined()) return expand(shift, y.shape());
  const DistTensor dx =
      shift.defined() ? addcmul(shift, y, slope) : mul(y, slope);
  return dy.defined() ? addcmul(dx, dy, rstd) : dx;
}

// (x - mean) * rstd over these dimensions, and the variance without a gradient.
std::pair<NormWithStats, DistTensor> standardized(std::string_view op,
                                                  const DistTensor& given,
                                                  const std::vector<int>& dims,
                                                  double eps) {
  const DistTensor x = wide(given);
  const bool recorded = any_records({x});
  std::vector<DistTensor> out;
  DistTensor variance, mean;
  {
    const NoGrad no_grad;
    std::tie(variance, mean) = var_mean(x, dims, 0, true);
    const DistTensor rstd = rsqrt(add(variance, eps));
    out = {mul(sub(x, mean), rstd), mean, rstd};
  }
  if (recorded)
    out = with_gradient(
        op, {x}, out,
        [x, dims](std::span<const DistTensor> results,
                  std::span<const DistTensor> cotangents,
                  std::span<const bool>) -> std::vector<DistTensor> {
          return {standardized_gradient(x, results, cotangents, dims)};
        },
        {x}, Needs::kOutputs);
  return {{out[0], out[1], out[2]}, variance};
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
  const auto [norm, variance] = standardized(op, given, dims, eps);
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

// `own`: the argument that has the statistics of x taken.
RunningNorm by_running(std::string_view op, std::string_view own,
                       const DistTensor& x, const DistTensor& running_mean,
                       const DistTensor& running_var, const DistTensor& gamma,
                       const DistTensor& beta, double eps) {
  DT_CHECK(running_mean.defined() && running_var.defined(), op,
           "the running {} not given; pass both, or {} = true for the "
           "statistics of the input",
           running_mean.defined()  ? "variance is"
           : running_var.defined() ? "mean is"
                                   : "mean and variance are",
           own);
  const DistTensor rstd = rsqrt(add(wide(running_var), eps));
  const DistTensor y =
      mul(sub(wide(x), over_channels(running_mean, x)), over_channels(rstd, x));
  return {channels_affine(y, gamma, beta, x.dtype()), running_mean,
          running_var};
}

}  // namespace

static const OpFamily kFamily("group_norm", [] {
  return OpList{&backward_op(true), &backward_op(false)};
});

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
    return by_running("batch_norm", "training", x, running_mean, running_var,
                      gamma, beta, eps);
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
    return by_running("instance_norm", "use_input_stats", x, running_mean,
                      running_var, gamma, beta, eps);
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
  NormWithStats norm =
      standardized("native_layer_norm", x, dims_from(x.ndim() - n, x), eps)
          .first;
  norm.y = affine(norm.y, gamma, beta, x.dtype());
  return norm;
}

NormWithStats native_group_norm(const DistTensor& x, int64_t groups,
                                const DistTensor& gamma, const DistTensor& beta,
                                double eps) {
  check_channels("native_group_norm", x, {gamma, beta});
  const DistTensor rows = grouped("native_group_norm", x, groups);
  const NormWithStats norm =
      standardized("native_group_norm", rows, dims_from(2, rows), eps).first;
  const Shape sets{x.size(0), groups};
  return {channels_affine(reshape(norm.y, x.shape()), gamma, beta, x.dtype()),
          reshape(norm.mean, sets), reshape(norm.rstd, sets)};
}

}  // namespace dtensor
