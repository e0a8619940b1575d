#include <algorithm>
#include <utility>

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/op_lists.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Values = SampleInput::Values;

struct TopKArgs {
  static constexpr Fields kFields = {"k", "largest"};
  int64_t k;
  bool largest;
};
struct PutArgs {
  static constexpr Fields kFields = {"size"};
  int64_t size;  // of the dimension to put the elements into
};

const Op& put_op();
const Op& take_op();

// The assignment of `put` from `take`, of `take` from `put`, and of `put` from
// topk: the factors n and k are in reverse order.
Assignment exchanged(const GradientCall& g) {
  Assignment a = inherited(g);
  std::swap(a.dims[0], a.dims[1]);
  return a;
}

// The candidates of one rank: at most k of each of its ranges.
struct Candidates {
  Tensor values, ids;  // [rows, n]
};

// x "...n" -> values "...k", indices "...k"
class TopKOp : public Op {
 public:
  TopKOp() : Op("topk") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const int64_t k = attrs.as<TopKArgs>().k;
    const int64_t row = shapes[0].empty() ? 0 : shapes[0].back();
    DT_CHECK(!shapes[0].empty() && k >= 0 && k <= row, name(),
             "k is {}, but a row of {} has {} elements; write 0 to {}", k,
             dtensor::to_string(shapes[0]), row, row);
    return BoundRule(Rule("...n~->...k!,...k!"), shapes, name(), {{'k', k}});
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    DT_CHECK(in[0] != DType::kBool, name(),
             "bools have no order; write cast(x, DType::kI32)");
    return {in[0], DType::kI64};
  }
  std::vector<Sample> samples() const override {
    return {{{{{3, 5}}}, TopKArgs{2, true}, true},
            {{{{7}}}, TopKArgs{4, false}, true},
            {{{{2, 3, 5}}}, TopKArgs{5, true}, true},
            {{{{5, 2}}}, TopKArgs{1, false}, true}};
  }
  bool saves_inputs() const override { return false; }
  bool saves_outputs() const override { return true; }

  void compute(Compute& c) const override {
    const TopKArgs& args = c.attrs.as<TopKArgs>();
    const Rows x(c.in[0]);
    kernels::TopK k{.x = x,
                    .k = args.k,
                    .largest = args.largest,
                    .values = c.out[0].mutable_data(),
                    .value_ids = c.out[1].mutable_ptr<int64_t>()};
    const auto best = [&](const Tensor& values, const Tensor& ids, int64_t n) {
      k.x = {values.dtype(), x.rows, n, values.data(), n};
      k.ids = ids.ptr<int64_t>();
      c.run(k);
    };
    const AxisMask axes = c.axes_of('n');
    if (!axes) return c.run(k);
    const Candidates mine = candidates(c, x);
    // [rows, candidates], ordered by rank.
    const auto columns = [&](const Coord& at, bool all) {
      int64_t lo = 0, hi = 0;
      for (int64_t r : c.mesh().group(axes, at)) {
        const Coord other = c.mesh().coordinate(r);
        const int64_t n = count(c.decision.in[0]->region(other).back(), args.k);
        if (!all && other == at) return rows_and(c, at, lo, lo + n);
        (all ? hi : lo) += n;
      }
      return rows_and(c, at, 0, hi);
    };
    const auto holds = [&](const Coord& at) { return columns(at, false); };
    const auto wants = [&](const Coord& at) { return columns(at, true); };
    const Tensor values =
        c.fetch(mine.values, axes, holds, wants).to_contiguous();
    const Tensor ids = c.fetch(mine.ids, axes, holds, wants).to_contiguous();
    best(values, ids, values.shape().back());
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    check_first_only(g);
    const Assignment a = exchanged(g);
    const int64_t n = g.decision->in[0]->shape().back();
    return {apply1(put_op(), std::vector{g.cotangents[0], g.outputs[1]},
                   PutArgs{n}, &a)};
  }

 private:
  static int64_t count(const IntervalList& ranges, int64_t k) {
    int64_t n = 0;
    for (const Interval& range : ranges) n += std::min(k, range.size());
    return n;
  }
  static Region rows_and(const Compute& c, const Coord& at, int64_t lo,
                         int64_t hi) {
    const auto range = [](int64_t from, int64_t to) {
      return from < to ? IntervalList{{from, to}} : IntervalList{};
    };
    return {range(0, c.rows_at('n', at)), range(lo, hi)};
  }
  static Candidates candidates(Compute& c, const Rows& x) {
    const TopKArgs& args = c.attrs.as<TopKArgs>();
    const DType t = x.t.dtype();
    const IntervalList ranges = c.ranges_of('n');
    const int64_t n = count(ranges, args.k);
    Candidates all{c.scratch({x.rows, n}, t),
                   c.scratch({x.rows, n}, DType::kI64)};
    int64_t from = 0, to = 0;
    for (const Interval& range : ranges) {
      const int64_t k = std::min(args.k, range.size());
      const Tensor part = x.t.slice(1, from, from + range.size());
      const bool only = k == n;
      const Candidates of{only ? all.values : c.scratch({x.rows, k}, t),
                          only ? all.ids : c.scratch({x.rows, k}, DType::kI64)};
      c.run(kernels::TopK{.x = {t, x.rows, range.size(), part.data(), x.stride},
                          .first = range.lo,
                          .k = k,
                          .largest = args.largest,
                          .values = of.values.mutable_data(),
                          .value_ids = of.ids.mutable_ptr<int64_t>()});
      if (!only) {
        Tensor(all.values.slice(1, to, to + k)).copy_from(of.values);
        Tensor(all.ids.slice(1, to, to + k)).copy_from(of.ids);
      }
      from += range.size();
      to += k;
    }
    return all;
  }
};

const Op& topk_op() {
  static const TopKOp op;
  return op;
}

std::vector<Sample> row_samples(bool put) {
  std::vector<Sample> list;
  for (const auto& [rows, n, k] :
       std::vector<std::array<int64_t, 3>>{{3, 5, 2}, {5, 3, 4}, {1, 7, 1}}) {
    Sample s;
    s.inputs = {{{rows, put ? k : n}}, {{rows, k}, Values::kIndex, n}};
    if (put) s.attrs = PutArgs{n};
    list.push_back(s);
  }
  return list;
}

void check_indices(std::string_view op, DType t) {
  DT_CHECK(t == DType::kI64, op,
           "the indices are {}, but must be i64; write cast(indices, "
           "DType::kI64)",
           name(t));
}

// dy "...k", indices "...k" -> "...n": dy at the indices, zeros elsewhere
class Put : public Op {
 public:
  Put() : Op("topk_backward") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(Rule("...k!,...k!->...n | linear 0"), shapes, name(),
                     {{'n', attrs.as<PutArgs>().size}});
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    check_indices(name(), in[1]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return row_samples(true); }

  void compute(Compute& c) const override {
    const Rows dy(c.in[0]);
    const Tensor index = c.in[1].to_contiguous();
    const IntervalList ranges = c.ranges_of('n');
    int64_t at = 0;
    for (const Interval& range : ranges) {
      const bool only = ranges.size() == 1;
      const Tensor to =
          only ? c.out[0] : c.scratch({dy.rows, range.size()}, c.in[0].dtype());
      c.run(kernels::PutRows{.dy = dy,
                             .index = index.ptr<int64_t>(),
                             .lo = range.lo,
                             .hi = range.hi,
                             .dx = to.mutable_data()});
      const Tensor whole = c.out[0];
      if (!only)
        Tensor(whole.slice(whole.ndim() - 1, at, at + range.size()))
            .copy_from(to.reshape(
                whole.slice(whole.ndim() - 1, at, at + range.size()).shape()));
      at += range.size();
    }
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const Assignment a = exchanged(g);
    return {
        apply1(take_op(), std::vector{g.cotangents[0], g.inputs[1]}, {}, &a),
        {}};
  }
};

const Op& put_op() {
  static const Put op;
  return op;
}

// x "...n", indices "...k" -> "...k": the elements at the indices. Every index
// is in one rank's range; the other ranks contribute zeros.
class Take : public Op {
 public:
  Take() : Op("topk_backward_backward") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(Rule("...n,...k!->...k | linear 0"), shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_indices(name(), in[1]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override { return row_samples(false); }

  void compute(Compute& c) const override {
    const Rows x(c.in[0]);
    const Tensor index = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
    const int64_t k = index.shape().back();
    const auto look_up = [&](Interval range, int64_t from, const Tensor& to) {
      kernels::Matrix part = x;
      if (part.data)
        part.data =
            static_cast<const char*>(part.data) + from * size_of(out.dtype());
      c.run(kernels::TakeRows{.x = part,
                              .k = k,
                              .index = index.ptr<int64_t>(),
                              .lo = range.lo,
                              .hi = range.hi,
                              .out = to.mutable_data()});
    };
    const IntervalList ranges = c.ranges_of('n');
    look_up(ranges.empty() ? Interval{} : ranges[0], 0, out);
    int64_t from = ranges.empty() ? 0 : ranges[0].size();
    for (size_t i = 1; i < ranges.size(); from += ranges[i++].size()) {
      const Tensor more = c.scratch(out.shape(), out.dtype());
      look_up(ranges[i], from, more);
      row_binary(c, fn::index_of<fn::Add>, out, more, out);
    }
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const Assignment a = exchanged(g);
    return {apply1(put_op(), std::vector{g.cotangents[0], g.inputs[1]},
                   PutArgs{g.inputs[0].shape().back()}, &a),
            {}};
  }
};

const Op& take_op() {
  static const Take op;
  return op;
}

}  // namespace

TopK topk(const DistTensor& x, int64_t k, int dim, bool largest) {
  check_defined("topk", {&x, 1});
  // As in torch, a scalar is a row of one element.
  if (x.ndim() == 0 && (dim == 0 || dim == -1)) {
    const TopK row = topk(reshape(x, {1}), k, 0, largest);
    if (k != 1) return row;
    return {reshape(row.values, {}), reshape(row.indices, {})};
  }
  const int d = normalize_dim(dim, x.ndim(), "topk"), last = x.ndim() - 1;
  const DistTensor rows = d == last ? x : transpose(x, d, last);
  std::vector<DistTensor> best =
      apply(topk_op(), {&rows, 1}, TopKArgs{k, largest});
  if (d != last)
    for (DistTensor& t : best) t = transpose(t, d, last);
  return {best[0], best[1]};
}

OpList topk_ops() { return {&topk_op(), &put_op(), &take_op()}; }

}  // namespace dtensor
