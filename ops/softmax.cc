// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

struct SoftmaxArgs {
  static constexpr Fields kFields = {"dim"};
  int64_t dim;
};

const char* softmax_rule(int inputs) {
  return inputs == 1 ? "...n~->...n" : "...n~,...n->...n | linear 1";
}

std::vector<Sample> softmax_samples(int inputs) {
  std::vector<Sample> list;
  auto sample = [&](Shape shape, int64_t dim) {
    Sample s;
    for (int i = 0; i < inputs; ++i)
      s.inputs.push_back({shape, SampleInput::Values::kAny, 0});
    s.attrs = SoftmaxArgs{dim};
    list.push_back(s);
  };
  sample({3, 5}, 1);
  sample({5, 3, 7}, 1);
  sample({2, 5, 17}, 1);  // many rows lie side by side
  sample({7}, 0);
  sample({5, 1}, 1);
  sample({1, 7}, 0);
  return list;
}

// y, dy -> dx, where y is the output of Softmax.
class SoftmaxBackward : public Op {
 public:
  explicit SoftmaxBackward(bool log)
      : Op(log ? "log_softmax_backward" : "softmax_backward",
           {.differentiable = false, .sums = OpFacts::Sums::kInside}),
        log_(log) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(along(softmax_rule(2), shapes[0].size(),
                           attrs.as<SoftmaxArgs>().dim, name()),
                     shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return softmax_samples(2); }

  void compute(Compute& c) const override {
    const int64_t dim = c.attrs.as<SoftmaxArgs>().dim;
    const DType t = c.in[0].dtype();
    const AxisMask axes = c.axes_of('n');
    // The kernels take a row stride for dy, but not for y.
    const int64_t size = c.global_size('n');
    const Rows y(c.in[0].to_contiguous(), dim, size), dy(c.in[1], dim, size);
    const bool log = log_;  // so that the lambdas do not capture `this`
    into_rows(c, c.out[0], dy, dim, [&](const Tensor& dx) {
      kernels::SoftmaxBackward a{.dy = dy,
                                 .y = y.data(),
                                 .dx = dx.mutable_data(),
                                 .log = log,
                                 .by_leaves = c.context.reproducible};
      if (!axes) return c.run(a);
      Tensor sum = c.scratch({y.rows}, kernels::stat_of(t));
      if (log)
        c.run(kernels::RowSum{.x = dy, .sum = sum.mutable_data()});
      else
        c.run(kernels::RowDot{.y = y, .dy = dy, .dot = sum.mutable_data()});
      c.reduce_rows(sum, 'n', ReduceOp::kSum);
      a.sum = sum.data();
      c.run(a);
    });
  }

 private:
  bool log_;
};

const Op& backward_op(bool log) {
  static const SoftmaxBackward plain(false), logarithm(true);
  return log ? logarithm : plain;
}

class Softmax : public Op {
 public:
  explicit Softmax(bool log)
      : Op(log ? "log_softmax" : "softmax", {.saved_inputs = 0,
                                             .saves_outputs = true,
                                             .sums = OpFacts::Sums::kInside}),
        log_(log) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(along(softmax_rule(1), shapes[0].size(),
                           attrs.as<SoftmaxArgs>().dim, name()),
                     shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return softmax_samples(1); }

  void compute(Compute& c) const override {
    const int64_t dim = c.attrs.as<SoftmaxArgs>().dim;
    const DType t = c.in[0].dtype();
    const AxisMask axes = c.axes_of('n');
    const Rows x(c.in[0], dim, c.global_size('n'));
    const bool log = log_;  // so that the lambdas do not capture `this`
    into_rows(c, c.out[0], x, dim, [&](const Tensor& y) {
      kernels::Softmax a{.x = x,
                         .y = y.mutable_data(),
                         .log = log,
                         .by_leaves = c.context.reproducible};
      if (!axes) return c.run(a);
      // Combines the maximum and the sum of each part of a row into those of
      // the whole row.
      Tensor max = c.scratch({x.rows}, kernels::stat_of(t));
      Tensor sum = c.scratch({x.rows}, kernels::stat_of(t));
      c.run(kernels::RowMaxSum{
          .x = x, .max = max.mutable_data(), .sum = sum.mutable_data()});
      to_common_max(c, 'n', max, sum);
      c.reduce_rows(sum, 'n', ReduceOp::kSum);
      a.max = max.data();
      a.sum = sum.data();
      c.run(a);
    });
  }

  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor &y = c.outputs[0], &dy = c.cotangents[0];
    const int dim = static_cast<int>(c.attrs.as<SoftmaxArgs>().dim);
    if (grad_enabled()) {
      if (log_) return {dy - exp(y) * sum(dy, {dim}, true)};
      return {y * (dy - sum(y * dy, {dim}, true))};
    }
    const Assignment a = inherited(c);
    return {apply1(backward_op(log_), {y, dy}, c.attrs, &a)};
  }

 private:
  bool log_;
};

const Op& forward_op(bool log) {
  static const Softmax plain(false), logarithm(true);
  return log ? logarithm : plain;
}

DistTensor run_softmax(const DistTensor& x, int dim, bool log) {
  const Op& op = forward_op(log);
  check_defined(op.name(), x);
  // As in torch, a scalar is a row of one element.
  if (x.ndim() == 0 && (dim == 0 || dim == -1))
    return reshape(run_softmax(reshape(x, {1}), 0, log), {});
  return apply1(op, x, SoftmaxArgs{normalize_dim(dim, x.ndim(), op.name())});
}

}  // namespace

DistTensor softmax(const DistTensor& x, int dim) {
  return run_softmax(x, dim, false);
}

DistTensor log_softmax(const DistTensor& x, int dim) {
  return run_softmax(x, dim, true);
}

static const OpFamily kFamily("softmax", [] {
  return OpList{&forward_op(false), &forward_op(true), &backward_op(false),
                &backward_op(true)};
});

}  // namespace dtensor
