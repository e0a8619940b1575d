// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct TopKArgs {
  static constexpr Fields kFields = {"k", "largest"};
  int64_t k;
  bool largest;
};
// The candidates of one rank: the best k elements of each of its ranges of
// indices, or all elements of a range that has fewer.
struct Candidates {
  Tensor values, ids;  // [rows, n]
};

// x "...n" -> values "...k", indices "...k"
class TopKOp : public Op {
 public:
  TopKOp() : Op("topk", {.saved_inputs = 0, .saves_outputs = true}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const int64_t k = attrs.as<TopKArgs>().k;
    const int64_t row = shapes[0].empty() ? 0 : shapes[0].back();
    DT_CHECK(!shapes[0].empty() && k >= 0 && k <= row, name(),
             "k is {}, but the size of the dimension is {}; write 0 to {}", k,
             row, row);
    return BoundRule(Rule("...n~->...k!,...k!"), shapes, name(), {{'k', k}});
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return values_and_indices(name(), in[0]);
  }
  std::vector<Sample> samples() const override {
    return {{{{{3, 5}}}, TopKArgs{2, true}, true},
            {{{{7}}}, TopKArgs{4, false}, true},
            {{{{2, 3, 5}}}, TopKArgs{5, true}, true},
            {{{{5, 2}}}, TopKArgs{1, false}, true}};
  }

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
    // The group's candidates form a matrix [rows, n], with the columns of one
    // rank after those of another. columns() returns the region of the rank at
    // `at`, or of all ranks.
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

  InputGradients gradient(const GradientCall& g) const override {
    const Assignment a = exchanged(g);
    const int64_t n = g.decision->in[0]->shape().back();
    return {put_in_rows(g.cotangents[0], g.outputs[1], n, &a)};
  }

 private:
  static int64_t count(const IntervalList& ranges, int64_t k) {
    int64_t n = 0;
    for (const Interval& range : ranges) n += std::min(k, range.size());
    return n;
  }
  static IntervalList range(int64_t from, int64_t to) {
    return from < to ? IntervalList{{from, to}} : IntervalList{};
  }
  static IntervalList rows_of(const Compute& c, const Coord& at) {
    return range(0, c.rows_at('n', at));
  }
  static Region rows_and(const Compute& c, const Coord& at, int64_t lo,
                         int64_t hi) {
    return {rows_of(c, at), range(lo, hi)};
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
        all.values.slice(1, to, to + k).copy_from(of.values);
        all.ids.slice(1, to, to + k).copy_from(of.ids);
      }
      from += range.size();
      to += k;
    }
    return all;
  }
};

// A tensor whose elements have the reverse order of those of x, except that a
// NaN stays largest.
DistTensor reversed(std::string_view op, const DistTensor& x) {
  check_defined(op, x);
  return is_float(x.dtype()) ? neg(x.detach()) : bitwise_not(x);
}

}  // namespace

std::vector<DType> values_and_indices(std::string_view op, DType t) {
  DT_CHECK(t != DType::kBool, op,
           "bools have no order; write cast(x, DType::kI32)");
  return {t, DType::kI64};
}

TopK topk(const DistTensor& x, int64_t k, int dim, bool largest) {
  check_defined("topk", x);
  // As in torch, a scalar is a row of one element.
  if (x.ndim() == 0 && (dim == 0 || dim == -1)) {
    const TopK row = topk(reshape(x, {1}), k, 0, largest);
    if (k != 1) return row;
    return {reshape(row.values, {}), reshape(row.indices, {})};
  }
  const int d = normalize_dim(dim, x.ndim(), "topk");
  DT_CHECK(k >= 0 && k <= x.size(d), "topk",
           "k is {}, but dimension {} of {} has size {}; write 0 to {}", k, d,
           x.spec()->to_string(), x.size(d), x.size(d));
  const DistTensor rows = to_last(x, d);
  const std::vector<DistTensor> best =
      apply(op_of<TopKOp>(), rows, TopKArgs{k, largest});
  return {to_last(best[0], d), to_last(best[1], d)};
}

// argmax(), whose errors name `op`.
static DistTensor index_of_best(std::string_view op, const DistTensor& x,
                                int dim, bool keepdim) {
  check_defined(op, x);
  values_and_indices(op, x.dtype());
  if (x.ndim() == 0 && (dim == 0 || dim == -1)) return topk(x, 1, dim).indices;
  const int d = normalize_dim(dim, x.ndim(), op);
  DT_CHECK(x.size(d) > 0, op,
           "dimension {} of {} is empty; pass a tensor with elements", d,
           x.spec()->to_string());
  const DistTensor best = topk(x.detach(), 1, d).indices;
  return keepdim ? best : squeeze(best, d);
}

// Reduces one dimension after the other, so that no rank needs the rows of
// another rank.
static DistTensor index_of_best(std::string_view op, const DistTensor& x) {
  check_defined(op, x);
  values_and_indices(op, x.dtype());
  DT_CHECK(numel(x.shape()) > 0, op, "{} is empty; pass a tensor with elements",
           x.spec()->to_string());
  DistTensor values = x.detach(), index;
  int64_t stride = 1;
  for (int d = x.ndim() - 1; d >= 0; --d) {
    const TopK best = topk(values, 1, d);
    index =
        index.defined()
            ? to_last(take_in_rows(to_last(index, d), to_last(best.indices, d)),
                      d) +
                  best.indices * stride
            : best.indices;
    stride *= x.size(d);
    values = best.values;
  }
  return x.ndim() == 0 ? argmax(x, 0) : reshape(index, {});
}

DistTensor argmax(const DistTensor& x, int dim, bool keepdim) {
  return index_of_best("argmax", x, dim, keepdim);
}
DistTensor argmax(const DistTensor& x) { return index_of_best("argmax", x); }
DistTensor argmin(const DistTensor& x, int dim, bool keepdim) {
  return index_of_best("argmin", reversed("argmin", x), dim, keepdim);
}
DistTensor argmin(const DistTensor& x) {
  return index_of_best("argmin", reversed("argmin", x));
}

DistTensor multinomial(const DistTensor& weights, int64_t n, bool replacement,
                       Generator g) {
  check_defined("multinomial", weights);
  const int64_t m = weights.ndim() > 0 ? weights.size(-1) : 0;
  DT_CHECK(weights.ndim() > 0 && (m > 0 || !replacement), "multinomial",
           "there are no weights in the last dimension of {}; pass a tensor "
           "[..., m] with m of at least {}",
           weights.spec()->to_string(), replacement ? 1 : 0);
  DT_CHECK(n >= 0 && (replacement || n <= m), "multinomial",
           "n is {}, for the weights {}; write {}", n,
           weights.spec()->to_string(),
           replacement ? "0 or more" : fmt::format("0 to {}", m));
  DistTensor w = weights.detach();
  w = cast(w, w.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
  if (replacement) {
    Shape all = w.shape();
    all.insert(all.size() - 1, n);
    w = expand(unsqueeze(w, -2), all);
  }
  Layout layout = w.layout();
  layout.partials.clear();
  const DistTensor u = uniform(w.shape(), w.mesh(), layout, w.dtype(), g);
  const DistTensor key = where(gt(w, 0), w / -log(u), -1);
  return replacement ? argmax(key, -1) : topk(key, n).indices;
}

DistTensor to_last(const DistTensor& x, int dim) {
  return dim == x.ndim() - 1 ? x : transpose(x, dim, x.ndim() - 1);
}

static const OpFamily kFamily("topk", [] { return OpList{&op_of<TopKOp>()}; });

}  // namespace dtensor
