// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

// A tensor with the rows along one of its dimensions. A scalar is a row of one
// element, as in torch.
struct Along {
  Along(std::string_view op, const DistTensor& x, int d) {
    check_defined(op, x);
    values_and_indices(op, x.dtype());
    scalar = x.ndim() == 0 && (d == 0 || d == -1);
    dim = scalar ? 0 : normalize_dim(d, x.ndim(), op);
    rows = scalar ? reshape(x, {1}) : to_last(x, dim);
    n = rows.size(-1);
    DT_CHECK(n > 0, op,
             "dimension {} of {} is empty; pass a tensor with elements", dim,
             x.spec()->to_string());
  }

  // One element per row, [..., 1], in the order of x's dimensions.
  DistTensor back(const DistTensor& y, bool keepdim) const {
    if (scalar) return reshape(y, {});
    const DistTensor kept = to_last(y, dim);
    return keepdim ? kept : squeeze(kept, dim);
  }
  // The elements at these indices [..., 1].
  TopK pick(const DistTensor& index, bool keepdim) const {
    return {back(take_in_rows(rows, index), keepdim), back(index, keepdim)};
  }

  DistTensor rows;  // [..., n]
  int64_t n = 0;
  int dim = 0;
  bool scalar = false;
};

// x "...n", ranks "...k" -> the indices "...k" of the elements that have these
// ranks, from 0 on, in the order of sort(). It is a radix selection: in each
// round, the ranks that split a row add up 256 counts (kernels::SelectRound).
// ids_at() compares their bytes with those of a sort. k is not split: every
// rank must know how many bytes the others send.
class KthIndex : public Op {
 public:
  KthIndex()
      : Op("kth_index", {.work = {kRounds,
                                  {.over = 'n',
                                   .times = 1,
                                   .added = kernels::SelectRound::kDigits,
                                   .times_of = kernels::select_rounds}},
                         .differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(Rule("...n~,...k!->...k"), shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    values_and_indices(name(), in[0]);
    DT_CHECK(in[1] == DType::kI64, name(), "the ranks are {}; cast them to i64",
             dtensor::name(in[1]));
    return {DType::kI64};
  }
  std::vector<Sample> samples() const override {
    const auto sample = [](const Shape& x, const Shape& ranks) {
      SampleInput rows{x};
      rows.zeros = true;
      return Sample{
          {rows, {ranks, SampleInput::Values::kIndex, x.back()}}, {}, true};
    };
    return {sample({17}, {2}), sample({3, 7}, {3, 1}),
            sample({2, 3, 5}, {2, 3, 4})};
  }

  void compute(Compute& c) const override {
    const Rows x(c.in[0]);
    const IntervalList ranges = c.ranges_of('n');
    const int64_t n = c.global_size('n'), k = c.global_size('k');
    const Tensor ranks = c.in[1].clone(), &found = c.out[0];
    const Tensor keys = c.scratch(found.shape(), DType::kI64);
    keys.fill(0);
    found.fill(0);
    Tensor ids;
    if (ranges.size() > 1) {
      std::vector<int64_t> list;
      for (const Interval& range : ranges)
        for (int64_t i = range.lo; i < range.hi; ++i) list.push_back(i);
      ids = Tensor::from({x.n}, list.data());
    }
    const bool small = n <= std::numeric_limits<int32_t>::max();
    const Tensor counts = c.scratch({x.rows, k, kernels::SelectRound::kDigits},
                                    small ? DType::kI32 : DType::kI64);
    kernels::SelectRound round{
        .x = x,
        .ids = ids.defined() ? ids.ptr<int64_t>() : nullptr,
        .first = ranges.empty() ? 0 : ranges[0].lo,
        .size = n,
        .k = k,
        .ranks = ranks.mutable_ptr<int64_t>(),
        .keys = keys.mutable_ptr<int64_t>(),
        .found = found.mutable_ptr<int64_t>(),
        .count_type = counts.dtype(),
        .counts = counts.mutable_data()};
    for (; round.round < kernels::select_rounds(x.t.dtype(), n);
         ++round.round) {
      c.run(round);
      c.reduce_rows(counts, 'n', ReduceOp::kSum,
                    k * kernels::SelectRound::kDigits);
    }
    c.run(round);
  }

 private:
  static constexpr double kRounds = 7;  // of f32, in rows of 2^24 elements
};

const Op& kth_index_op() {
  static const KthIndex op;
  return op;
}

// About the number of bytes that a rank sends for a row in which k elements are
// wanted: in kth_index, in sort(), or in topk() of the k smallest. With whole
// rows, about the number that kth_index and sort() write.
struct RowBytes {
  RowBytes(const Along& a, int64_t k) {
    const Dim& dim = a.rows.layout().dims.back();
    const int64_t parts = a.rows.mesh().size_of(dim.axes()),
                  each = size_of(a.rows.dtype()) + size_of(DType::kI64);
    select = 2 * k * kernels::select_rounds(a.rows.dtype(), a.n) *
             kernels::SelectRound::kDigits * size_of(DType::kI32);
    sort = (a.n + parts - 1) / parts * each;
    topk = k * std::max<int64_t>(parts - 1, 1) * each;
  }
  int64_t select, sort, topk;
};

// The indices [..., k] of the elements that have these ranks. A rank that does
// not exist is an Error of this function or, from kth_index, no index.
// kth_index reads the row for each rank, so that many are faster to find in a
// sort.
DistTensor ids_at(const Along& a, const DistTensor& ranks) {
  constexpr int64_t kMost = 32;
  const DistTensor rows = a.rows.detach();
  const RowBytes bytes(a, ranks.size(-1));
  if (ranks.size(-1) <= kMost && bytes.select <= bytes.sort)
    return apply1(kth_index_op(), {rows, ranks});
  return gather(sort(rows).indices, -1, ranks);
}

TopK extreme(std::string_view op, const DistTensor& x, int dim, bool keepdim,
             bool largest) {
  check_defined(op, x);
  if (x.dtype() == DType::kBool) {
    const TopK y = extreme(op, cast(x, DType::kI32), dim, keepdim, largest);
    return {cast(y.values, DType::kBool), y.indices};
  }
  const Along a(op, x, dim);
  // topk() takes a NaN only as the largest element, so a minimum is the largest
  // element in reverse order.
  const auto ordered = [&](const DistTensor& t) {
    return largest ? t : is_float(t.dtype()) ? neg(t) : bitwise_not(t);
  };
  const TopK best = topk(ordered(a.rows), 1);
  return {a.back(ordered(best.values), keepdim), a.back(best.indices, keepdim)};
}

// x with its partial sums reduced. Each reader would otherwise reduce them
// itself, and might round them differently. (Under ExplicitOnly, the first
// reader throws Error.)
DistTensor reduced(const DistTensor& x) {
  Layout layout = x.layout();
  if (layout.partials.empty() || RankContext::current().explicit_only) return x;
  layout.partials.clear();
  return relayout(x, x.spec()->with(layout));
}

// The number of NaNs in each row.
DistTensor count_nans(const Along& a) {
  return reduced(sum(isnan(a.rows.detach()), {-1}, true));
}

TopK middle(std::string_view op, const DistTensor& x, int dim, bool keepdim,
            bool skip_nans) {
  const Along a(op, x, dim);
  const DistTensor nans = count_nans(a);
  const DistTensor rank = skip_nans
                              ? floor_divide(clamp_min(a.n - nans - 1, 0), 2)
                              : where(gt(nans, 0), a.n - nans, (a.n - 1) / 2);
  return a.pick(ids_at(a, rank), keepdim);
}

DistTensor middle(std::string_view op, const DistTensor& in, bool skip_nans) {
  check_defined(op, in);
  if (numel(in.shape()) == 0 && is_float(in.dtype())) return mean(in);
  const DistTensor x = reduced(in);
  const DistTensor value =
      middle(op, flatten(x.detach()), 0, false, skip_nans).values;
  if (!is_float(x.dtype())) return value;
  const DistTensor same = logical_or(
      eq(x.detach(), value), logical_and(isnan(x.detach()), isnan(value)));
  const DistTensor shares = sum(where(same, x, 0) / cast(sum(same), x.dtype()));
  // The sum of the shares has the right gradient, but it is rounded.
  return where(isfinite(shares), value + (shares - shares.detach()), shares);
}

DistTensor at_quantile(std::string_view op, const DistTensor& x,
                       const DistTensor& q, std::optional<int> dim,
                       bool keepdim, QuantileInterpolation how,
                       bool skip_nans) {
  check_defined(op, {x, q});
  const DType t = x.dtype();
  DT_CHECK((t == DType::kF32 || t == DType::kF64) && q.dtype() == t, op,
           "x is {} and q is {}; cast both to f32, or both to f64", name(t),
           name(q.dtype()));
  DT_CHECK(q.ndim() <= 1, op, "q is {}; pass a scalar or a vector",
           q.spec()->to_string());
  const Along a(op, dim ? x : flatten(x), dim.value_or(0));
  // Positions beyond 2^24 would be rounded.
  DT_CHECK(t == DType::kF64 || a.n <= int64_t{1} << 24, op,
           "has {} elements to order, but f32 holds positions up to {}; cast x "
           "and q to f64",
           a.n, int64_t{1} << 24);
  const DistTensor nans = count_nans(a);
  const DistTensor each = reshape(q, {numel(q.shape())});
  const DistTensor rank = skip_nans
                              ? each * clamp_min(a.n - nans - 1, 0)
                              : where(gt(nans, 0), a.n - 1, each * (a.n - 1));
  const DistTensor below = floor(rank.detach()), above = ceil(rank.detach());
  // The elements at these positions, one tensor [..., q] for each.
  const auto elements = [&](const std::vector<DistTensor>& positions) {
    const DistTensor all = flatten(stack(positions, -1), -2, -1);
    const DistTensor found =
        gather(a.rows, -1, ids_at(a, cast(all, DType::kI64)));
    return unbind(unflatten(found, -1, {each.size(0), std::ssize(positions)}),
                  -1);
  };
  const auto between = [&](const auto& weight) {
    const auto ends = elements({below, above});
    return lerp(ends[0], ends[1], weight);
  };
  const auto value = [&] {
    switch (how) {
      case QuantileInterpolation::kLower:
        return elements({below})[0];
      case QuantileInterpolation::kHigher:
        return elements({above})[0];
      case QuantileInterpolation::kNearest:
        return elements({round(rank.detach())})[0];
      case QuantileInterpolation::kLinear:
        return between(rank - below);
      case QuantileInterpolation::kMidpoint:
        break;
    }
    return between(0.5);
  };
  // [..., the elements of q, ...] -> [the elements of q, ..., ...]
  const DistTensor y = movedim(to_last(value(), a.dim), {a.dim}, {0});
  Shape shape = x.shape();
  for (int d = x.ndim() - 1; d >= 0; --d)
    if (!dim || d == a.dim) {
      if (keepdim)
        shape[d] = 1;
      else
        shape.erase(d);
    }
  if (q.ndim() == 1) shape.insert(0, q.size(0));
  return reshape(y, shape);
}

DistTensor at_quantile(std::string_view op, const DistTensor& x, double q,
                       std::optional<int> dim, bool keepdim,
                       QuantileInterpolation how, bool skip_nans) {
  check_defined(op, x);
  DT_CHECK(q >= 0 && q <= 1, op, "q is {}; write a number from 0 to 1", q);
  return at_quantile(op, x, full({}, q, x.mesh(), {}, x.dtype()), dim, keepdim,
                     how, skip_nans);
}

}  // namespace

TopK max(const DistTensor& x, int dim, bool keepdim) {
  return extreme("max", x, dim, keepdim, true);
}
TopK min(const DistTensor& x, int dim, bool keepdim) {
  return extreme("min", x, dim, keepdim, false);
}

TopK kthvalue(const DistTensor& x, int64_t k, int dim, bool keepdim) {
  const Along a("kthvalue", x, dim);
  DT_CHECK(k >= 1 && k <= a.n, "kthvalue",
           "k is {}, but dimension {} of {} has size {}; write 1 to {}", k,
           a.dim, x.spec()->to_string(), a.n, a.n);
  const RowBytes bytes(a, 1);
  if (k <= a.n / 4 &&
      RowBytes(a, k).topk <= std::min(bytes.select, bytes.sort)) {
    const DistTensor best = topk(a.rows.detach(), k, -1, false).indices;
    return a.pick(narrow(best, -1, k - 1, 1), keepdim);
  }
  Shape shape = a.rows.shape();
  shape.back() = 1;
  const DistTensor rank =
      full(shape, static_cast<double>(k - 1), x.mesh(), {}, DType::kI64);
  return a.pick(ids_at(a, rank), keepdim);
}

TopK median(const DistTensor& x, int dim, bool keepdim) {
  return middle("median", x, dim, keepdim, false);
}
TopK nanmedian(const DistTensor& x, int dim, bool keepdim) {
  return middle("nanmedian", x, dim, keepdim, true);
}
DistTensor median(const DistTensor& x) { return middle("median", x, false); }
DistTensor nanmedian(const DistTensor& x) {
  return middle("nanmedian", x, true);
}

TopK mode(const DistTensor& x, int dim, bool keepdim) {
  const Along a("mode", x, dim);
  const TopK order = sort(a.rows.detach());
  // In the order of the elements, equal ones form a run. An element's place in
  // its run is largest at the last element of the longest run.
  Layout split;
  split.dims = {order.values.layout().dims.back()};
  const DistTensor places = arange(a.n, x.mesh(), split);
  const DistTensor begins =
      cat({cast(ones_like(narrow(order.values, -1, 0, 1)), DType::kBool),
           ne(narrow(order.values, -1, 1, a.n - 1),
              narrow(order.values, -1, 0, a.n - 1))},
          -1);
  const DistTensor begin = cummax(where(begins, places, 0), -1).first;
  const DistTensor last = argmax(places - begin, -1, true);
  return a.pick(take_in_rows(order.indices, last), keepdim);
}

DistTensor quantile(const DistTensor& x, const DistTensor& q,
                    std::optional<int> dim, bool keepdim,
                    QuantileInterpolation how) {
  return at_quantile("quantile", x, q, dim, keepdim, how, false);
}
DistTensor quantile(const DistTensor& x, double q, std::optional<int> dim,
                    bool keepdim, QuantileInterpolation how) {
  return at_quantile("quantile", x, q, dim, keepdim, how, false);
}
DistTensor nanquantile(const DistTensor& x, const DistTensor& q,
                       std::optional<int> dim, bool keepdim,
                       QuantileInterpolation how) {
  return at_quantile("nanquantile", x, q, dim, keepdim, how, true);
}
DistTensor nanquantile(const DistTensor& x, double q, std::optional<int> dim,
                       bool keepdim, QuantileInterpolation how) {
  return at_quantile("nanquantile", x, q, dim, keepdim, how, true);
}

DistTensor msort(const DistTensor& x) {
  check_defined("msort", x);
  values_and_indices("msort", x.dtype());
  return sort(x, 0).values;
}

DistTensor histc(const DistTensor& in, int64_t bins, double min, double max) {
  check_defined("histc", in);
  DT_CHECK(is_float(in.dtype()), "histc", "x is {}; cast it to f32",
           name(in.dtype()));
  DT_CHECK(bins >= 1, "histc", "bins is {}; write 1 or more", bins);
  DT_CHECK(std::isfinite(min) && std::isfinite(max) && min <= max, "histc",
           "the range is from {} to {}; write finite numbers min <= max", min,
           max);
  // Half types have too few digits for the number of a bin.
  const DistTensor x = cast(in.detach(), kernels::stat_of(in.dtype()));
  const bool given = min < max || numel(x.shape()) == 0;
  const auto number = [&](double v) {
    return full({}, v, x.mesh(), {}, x.dtype());
  };
  const DistTensor least = given ? number(min) : amin(x);
  const DistTensor most = given ? number(max) : amax(x);
  const DistTensor widen = cast(eq(least, most), x.dtype());
  const DistTensor lo = least - widen, hi = most + widen;
  const DistTensor inside = logical_and(ge(x, lo), le(x, hi));
  const DistTensor place = (x - lo) * bins / (hi - lo);
  const DistTensor bin =
      cast(clamp_max(where(inside, place, 0), static_cast<double>(bins - 1)),
           DType::kI64);
  const DistTensor counts = cast(
      put_slices(cast(inside, DType::kI64), 0, bin, bins, false), x.dtype());
  return cast(given ? counts : counts + (hi - lo) * 0, in.dtype());
}

static const OpFamily kFamily("order", [] { return OpList{&kth_index_op()}; });

}  // namespace dtensor
