// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/cross_entropy.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/exact_sum.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/loss_parts.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using Values = SampleInput::Values;

struct CrossEntropyArgs {
  static constexpr Fields kFields = {value("ignore_index"),
                                     value("label_smoothing")};
  int64_t ignore_index;
  double label_smoothing;
};
using Args = CrossEntropyArgs;

// Calls with logits, targets, and this many more inputs with a number per row.
std::vector<Sample> samples_with(size_t more) {
  std::vector<Sample> list;
  for (const Shape& x :
       std::vector<Shape>{{3, 5}, {5, 7}, {2, 3, 5}, {7}, {5, 1}})
    for (const Args& args : {Args{-100, 0.0}, Args{2, 0.1}, Args{0, 1.0}}) {
      Shape rows = x;
      rows.pop_back();
      Sample s{{{x}, {rows, Values::kIndex, x.back()}}, args, true};
      s.inputs.resize(2 + more, {rows});
      list.push_back(s);
    }
  return list;
}

void check_targets(std::string_view op, const std::vector<Shape>& shapes) {
  Shape rows = shapes[0];
  DT_CHECK(!rows.empty(), op,
           "the logits are a scalar, not [..., classes]; pass at least one "
           "dimension");
  rows.pop_back();
  DT_CHECK(
      shapes[1] == rows, op,
      "targets of shape {} do not fit logits of shape {}; write targets of "
      "shape {}",
      to_string(shapes[1]), to_string(shapes[0]), to_string(rows));
}

void check_dtypes(std::string_view op, std::span<const DType> in) {
  check_float(op, in[0]);
  DT_CHECK(in[1] == DType::kI32 || in[1] == DType::kI64, op,
           "the targets are {}, but must be i32 or i64; write cast(targets, "
           "DType::kI64)",
           name(in[1]));
}

// This rank's part of the logits as rows, the ranges of the vocabulary that are
// its columns, and the rows' targets.
struct Part {
  explicit Part(Compute& c)
      : type(c.in[0].dtype()),
        stat(kernels::stat_of(type)),
        logits(c.in[0]),
        targets(c.in[1].to_contiguous()),
        columns(c.ranges_of('v')),
        rows({logits.rows}) {}

  // Calls fn(columns, their byte offset in a row) for each range of columns.
  template <class Fn>
  void for_ranges(Fn&& fn) const {
    int64_t at = 0;
    for (const Interval& range : columns) {
      fn(range, at * size_of(type));
      at += range.size();
    }
  }
  // True for targets that are not ignored.
  Tensor valid(Compute& c) const {
    Tensor ignored =
        Tensor::full(targets.shape(), targets.dtype(),
                     static_cast<double>(c.attrs.as<Args>().ignore_index));
    Tensor result = c.scratch(rows, DType::kBool);
    row_binary(c, fn::index_of<fn::Ne>, targets, ignored, result);
    return result;
  }

  DType type, stat;
  Rows logits;
  Tensor targets;
  IntervalList columns;
  Shape rows;
};

// logits, targets, max, log_sum, dloss -> dlogits
class CrossEntropyBackward : public Op {
 public:
  CrossEntropyBackward()
      : Op("cross_entropy_backward", {.differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    check_targets(name(), shapes);
    check_rows(name(), shapes, 1);
    return BoundRule(Rule("...v~,...,...,...,...->...v | linear 4"), shapes,
                     name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_dtypes(name(), in);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return samples_with(3); }

  void compute(Compute& c) const override {
    const Part p(c);
    const Tensor max = c.in[2].to_contiguous(),
                 log_sum = c.in[3].to_contiguous(),
                 dloss = c.in[4].to_contiguous();
    const Tensor valid = p.valid(c);
    Tensor scale = Tensor::full(p.rows, p.stat, 0);
    row_where(c, valid, dloss, scale, scale);
    kernels::CeBackward a{.logits = p.logits};
    a.max = max.data();
    a.log_sum = log_sum.data();
    a.target_type = p.targets.dtype();
    a.targets = p.targets.data();
    a.scale = scale.data();
    a.smoothing = c.attrs.as<Args>().label_smoothing;
    a.vocabulary = c.global_size('v');
    a.dlogits_stride = p.logits.n;
    p.for_ranges([&](Interval range, int64_t offset) {
      a.logits.data = static_cast<const char*>(p.logits.data()) + offset;
      a.dlogits = static_cast<char*>(c.out[0].mutable_data()) + offset;
      a.lo = range.lo;
      a.hi = range.hi;
      c.run(a);
    });
  }
};

// logits, targets -> the loss of each row; and for the gradient, the row's
// largest logit and the log of its sum of exp(logit - max).
class CrossEntropy : public Op {
 public:
  CrossEntropy()
      : Op("cross_entropy",
           {.saves_outputs = true, .sums = OpFacts::Sums::kExact}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    check_targets(name(), shapes);
    return BoundRule(Rule("...v~,...->...,...,..."), shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_dtypes(name(), in);
    return std::vector<DType>(3, kernels::stat_of(in[0]));
  }
  std::vector<Sample> samples() const override { return samples_with(0); }

  void compute(Compute& c) const override {
    const Part p(c);
    const Rows& x = p.logits;
    const double smoothing = c.attrs.as<Args>().label_smoothing;
    const Tensor &loss = c.out[0], &max = c.out[1], &log_sum = c.out[2];
    check_range(c, p);
    // All sums over whole rows are reduced in one message, after the maximum.
    const int count = smoothing != 0 ? 3 : 2;
    Tensor sums = c.scratch({count, x.rows}, p.stat);
    auto part = [&](int i) { return sums.slice(0, i, i + 1); };
    const Tensor exp_sum = part(0), picked = part(1);
    sums.fill(0);
    c.run(kernels::RowMaxSum{
        .x = x, .max = max.mutable_data(), .sum = exp_sum.mutable_data()});
    const bool exact = has_exact_sums(p.type);
    if (!exact) to_common_max(c, 'v', max, exp_sum);
    p.for_ranges([&](Interval range, int64_t offset) {
      kernels::Matrix logits = x;
      logits.data = static_cast<const char*>(x.data()) + offset;
      c.run(kernels::CePick{.logits = logits,
                            .target_type = p.targets.dtype(),
                            .targets = p.targets.data(),
                            .lo = range.lo,
                            .hi = range.hi,
                            .accumulate = true,
                            .picked = picked.mutable_data()});
    });
    if (smoothing != 0)
      c.run(kernels::RowSum{.x = x, .sum = part(2).mutable_data()});
    if (exact)
      sum_exactly(c, x, max, sums);
    else
      c.reduce_rows(sums, 'v', ReduceOp::kSum, count);
    const Tensor valid = p.valid(c), zero = Tensor::full(p.rows, p.stat, 0);
    using namespace fn;
    row_unary(c, index_of<Log>, exp_sum, log_sum);
    // The loss is (1 - e) * (max - picked) + e * (max - mean) + log_sum, where
    // e is the label smoothing, `picked` the target's logit, and `mean` the
    // mean of the logits. Taking the differences first avoids cancellation
    // between large logits.
    row_binary(c, index_of<Sub>, max, picked, loss);
    if (smoothing != 0) {
      const Tensor mean = part(2);
      row_unary(c, index_of<MulScalar>, mean, mean,
                1.0 / static_cast<double>(c.global_size('v')));
      row_binary(c, index_of<Sub>, max, mean, mean);
      row_unary(c, index_of<MulScalar>, mean, mean, smoothing);
      row_unary(c, index_of<MulScalar>, loss, loss, 1 - smoothing);
      row_binary(c, index_of<Add>, loss, mean, loss);
    }
    row_binary(c, index_of<Add>, loss, log_sum, loss);
    row_where(c, valid, loss, zero, loss);
  }

  InputGradients gradient(const GradientCall& c) const override {
    check_first_only(c);
    const DistTensor &logits = c.inputs[0], &targets = c.inputs[1];
    const DistTensor& dloss = c.cotangents[0];
    if (grad_enabled()) return {composed(logits, targets, dloss, c.attrs), {}};
    const Assignment a = inherited(c);
    return {apply1(op_of<CrossEntropyBackward>(),
                   {logits, targets, c.outputs[1], c.outputs[2], dloss},
                   c.attrs, &a),
            {}};
  }

 private:
  // Combines the ranks' parts of the maximum and of the sums in a reproducible
  // run. One rank has a row's picked logit.
  static void sum_exactly(Compute& c, const kernels::Matrix& x,
                          const Tensor& max, const Tensor& sums) {
    c.reduce_rows(max, 'v', ReduceOp::kMax);
    sum_exps(c, 'v', x, max, sums.slice(0, 0, 1));
    const int64_t count = sums.shape()[0] - 1;
    const Tensor others = sums.slice(0, 1, 1 + count);
    Tensor exact = converted(others, DType::kExact);
    if (count > 1) {  // the sum of all logits
      const Tensor total = exact.slice(0, 1, 2);
      total.fill(0);
      c.run(kernels::ExactSum{.type = x.type,
                              .shape = {x.rows, x.n},
                              .in = x.data,
                              .strides = {x.stride, 1},
                              .out = total.mutable_data(),
                              .out_strides = {1, 0}});
    }
    c.reduce_rows(exact, 'v', ReduceOp::kSum, count);
    c.device().cast(c.stream, others.shape(), others.dtype(),
                    others.mutable_data(), others.strides(), exact.dtype(),
                    exact.data(), exact.strides());
  }
  // Throws Error on every rank if any rank holds a target that is neither a
  // class nor ignore_index. On the CPU, throws before anything else is sent; on
  // other devices, later (id_range.h). Budgets and ExplicitOnly do not apply to
  // the exchange that this takes.
  static void check_range(Compute& c, const Part& p) {
    const int64_t ignore_index = c.attrs.as<Args>().ignore_index,
                  vocabulary = c.global_size('v');
    check_ids_in(c.context, c.op.name(), p.targets, *c.decision.in[1],
                 vocabulary, ignore_index, [=](int64_t target) {
                   return fmt::format(
                       "target {} is not in [0, {}), and not the ignore_index "
                       "{}; write one of these",
                       target, vocabulary, ignore_index);
                 });
  }

  // Computes dlogits = dloss * (softmax - (1 - e) * one_hot(target) - e / V)
  // with differentiable operators; e is the label smoothing, V the number of
  // classes.
  static DistTensor composed(const DistTensor& logits,
                             const DistTensor& targets, const DistTensor& dloss,
                             const Attrs& attrs) {
    const DType stat = dloss.dtype();
    const int64_t vocabulary = logits.size(-1);
    const double smoothing = attrs.as<Args>().label_smoothing;
    // The classes are split as the logits, so that no rank compares more than
    // its own columns.
    Layout columns;
    columns.dims = {logits.layout().dims.back()};
    const DistTensor classes =
        arange(vocabulary, logits.mesh(), columns, targets.dtype());
    const DistTensor target = cast(eq(unsqueeze(targets, -1), classes), stat);
    const DistTensor scale = unsqueeze(
        dloss * cast(counted(targets, attrs.as<Args>().ignore_index), stat),
        -1);
    const DistTensor p =
        softmax(logits.dtype() == stat ? logits : cast(logits, stat), -1);
    const DistTensor d =
        scale * (p - target * (1 - smoothing) -
                 full({}, smoothing / static_cast<double>(vocabulary),
                      logits.mesh(), {}, stat));
    return d.dtype() == logits.dtype() ? d : cast(d, logits.dtype());
  }
};

}  // namespace

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

DistTensor counted(const DistTensor& targets, int64_t ignore_index) {
  return ne(targets, full({}, static_cast<double>(ignore_index), targets.mesh(),
                          {}, targets.dtype()));
}

// ---- Class weights, and probabilities as targets ----
//
// These are compositions. If the vocabulary is split, log_softmax() exchanges a
// maximum and a sum per row, and the sums over classes stay partial.

namespace {

// -log softmax(logits) times the weights, in the type of the loss.
DistTensor costs(const DistTensor& logits, const DistTensor& weight) {
  const DType stat = kernels::stat_of(logits.dtype());
  const DistTensor cost = neg(log_softmax(cast(logits, stat), -1));
  return weight.defined() ? mul(cost, cast(weight, stat)) : cost;
}

DistTensor by_probabilities(const DistTensor& logits, const DistTensor& targets,
                            double smoothing, const DistTensor& weight) {
  DT_CHECK(targets.shape() == logits.shape(), "cross_entropy",
           "targets {} are probabilities, because they are floats, but do not "
           "fit logits of shape {}; pass one for each logit, or write "
           "cast(targets, DType::kI64)",
           targets.spec()->to_string(), to_string(logits.shape()));
  const double share = smoothing / static_cast<double>(logits.size(-1));
  const DistTensor p =
      smoothing == 0 ? targets : add(mul(targets, 1 - smoothing), share);
  const DistTensor cost = costs(logits, weight);
  return sum(mul(cost, cast(p, cost.dtype())), {-1});
}

// Returns {the loss of each row, the weight of its target}. A target that does
// not count has the weight 0.
std::pair<DistTensor, DistTensor> weighted(const DistTensor& logits,
                                           const DistTensor& targets,
                                           int64_t ignore_index,
                                           double smoothing,
                                           const DistTensor& weight) {
  const DistTensor plain =
      apply(op_of<CrossEntropy>(), {logits, targets}, Args{ignore_index, 0})[0];
  const DistTensor counts = counted(targets, ignore_index);
  const DistTensor table = unsqueeze(cast(weight, plain.dtype()), 1);
  const DistTensor own =
      where(counts,
            squeeze(embedding(table, targets, {.zeros_outside = true}), -1), 0);
  const DistTensor loss = mul(plain, own);
  if (smoothing == 0) return {loss, own};
  const DistTensor others = where(counts, mean(costs(logits, weight), {-1}), 0);
  return {add(mul(loss, 1 - smoothing), mul(others, smoothing)), own};
}

}  // namespace

DistTensor cross_entropy(const DistTensor& logits, const DistTensor& targets,
                         Reduction reduction, int64_t ignore_index,
                         double label_smoothing, const DistTensor& weight) {
  check_defined("cross_entropy", {logits, targets});
  DT_CHECK(label_smoothing >= 0 && label_smoothing <= 1, "cross_entropy",
           "label_smoothing is {}; write a number in [0, 1]", label_smoothing);
  const int64_t classes = logits.ndim() ? logits.size(-1) : 1;
  if (weight.defined())
    DT_CHECK(weight.shape() == Shape{classes}, "cross_entropy",
             "the weight {} does not fit {}; pass a vector of size {}",
             weight.spec()->to_string(), logits.spec()->to_string(), classes);
  const bool probabilities = is_float(targets.dtype());
  DistTensor loss, own;
  if (probabilities)
    loss = by_probabilities(logits, targets, label_smoothing, weight);
  else if (weight.defined())
    std::tie(loss, own) =
        weighted(logits, targets, ignore_index, label_smoothing, weight);
  else
    loss = apply(op_of<CrossEntropy>(), {logits, targets},
                 Args{ignore_index, label_smoothing})[0];
  if (probabilities || reduction != Reduction::kMean)
    return reduced(loss, reduction);
  if (!own.defined()) own = cast(counted(targets, ignore_index), loss.dtype());
  return div(sum(loss), sum(own));
}

static const OpFamily kFamily("cross_entropy", [] {
  return OpList{&op_of<CrossEntropy>(), &op_of<CrossEntropyBackward>()};
});

}  // namespace dtensor
