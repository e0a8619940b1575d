// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/order.h"

#include <cmath>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
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

TopK sorted(const Along& a) { return sort(a.rows.detach()); }

// The number of NaNs in each row.
DistTensor count_nans(const DistTensor& rows) {
  return sum(isnan(rows), {-1}, true);
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

TopK middle(std::string_view op, const DistTensor& x, int dim, bool keepdim,
            bool skip_nans) {
  const Along a(op, x, dim);
  const TopK order = sorted(a);
  const DistTensor nans = count_nans(order.values);
  const DistTensor rank = skip_nans
                              ? floor_divide(clamp_min(a.n - nans - 1, 0), 2)
                              : where(gt(nans, 0), a.n - nans, (a.n - 1) / 2);
  return a.pick(take_in_rows(order.indices, rank), keepdim);
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
  const TopK order = sorted(a);
  const DistTensor nans = count_nans(order.values);
  const DistTensor each = reshape(q, {numel(q.shape())});
  const DistTensor rank = skip_nans
                              ? each * clamp_min(a.n - nans - 1, 0)
                              : where(gt(nans, 0), a.n - 1, each * (a.n - 1));
  const auto element = [&](const DistTensor& whole) {
    return take_in_rows(
        a.rows, gather(order.indices, -1, cast(whole.detach(), DType::kI64)));
  };
  const DistTensor below = floor(rank.detach());
  const auto value = [&] {
    switch (how) {
      case QuantileInterpolation::kLower:
        return element(below);
      case QuantileInterpolation::kHigher:
        return element(ceil(rank));
      case QuantileInterpolation::kNearest:
        return element(round(rank));
      case QuantileInterpolation::kLinear:
        return lerp(element(below), element(ceil(rank)), rank - below);
      case QuantileInterpolation::kMidpoint:
        break;
    }
    return lerp(element(below), element(ceil(rank)), 0.5);
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
  const DistTensor order = k <= a.n / 4
                               ? topk(a.rows.detach(), k, -1, false).indices
                               : sorted(a).indices;
  return a.pick(narrow(order, -1, k - 1, 1), keepdim);
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
  const TopK order = sorted(a);
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
  const DistTensor x = in.detach();
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
  const DistTensor zero = full({bins}, 0, x.mesh(), {}, DType::kI64);
  const DistTensor counts =
      cast(index_put(zero, {bin}, cast(inside, DType::kI64), true), x.dtype());
  return given ? counts : counts + (hi - lo) * 0;
}

}  // namespace dtensor
