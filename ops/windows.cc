// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/windows.h"

#include <algorithm>

#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {

void check_per_dimension(size_t n, int space, std::string_view name,
                         std::string_view op) {
  DT_CHECK(
      n == 1 || n == static_cast<size_t>(space), op,
      "{} has {}; write one, or one for each of the {} dimensions of space",
      name, quantity(n, "number", "numbers"), space);
}

Triple per_dimension(const std::vector<int64_t>& list, int space,
                     std::string_view name, int64_t least,
                     std::string_view op) {
  check_per_dimension(list.size(), space, name, op);
  Triple all;
  for (int d = 0; d < space; ++d) {
    const int64_t at = list[list.size() == 1 ? 0 : static_cast<size_t>(d)];
    DT_CHECK(at >= least && at == static_cast<int32_t>(at), op,
             "{} is {} in dimension {} of space; write a number from {} to "
             "2147483647",
             name, at, d, least);
    all.push_back(at);
  }
  return all;
}

int64_t windows_along(const WindowSizes& w, int d, int64_t size,
                      std::string_view what, std::string_view op,
                      bool ceil_mode) {
  const int64_t span = w.dilation[d] * (w.taps[d] - 1) + 1,
                padded = size + 2 * w.pad[d], left = padded - span;
  DT_CHECK(left >= 0, op,
           "{} has {} elements in dimension {} of space, with padding, but a "
           "window spans {}; pad more, or take a smaller window",
           what, padded, d, span);
  const int64_t whole = left / w.stride[d] + 1;
  const bool more = ceil_mode && left % w.stride[d] > 0 &&
                    whole * w.stride[d] < size + w.pad[d];
  return whole + more;
}

DistTensor with_batch(const DistTensor& x, int space, std::string_view op,
                      const std::function<DistTensor(const DistTensor&)>& fn) {
  check_defined(op, {x});
  DT_CHECK(x.ndim() == space + 2 || x.ndim() == space + 1, op,
           "x has shape {}; pass one of {} dimensions: the batch, which may be "
           "missing, the channels, and {} of space",
           to_string(x.shape()), space + 2, space);
  if (x.ndim() == space + 2) return fn(x);
  return squeeze(fn(unsqueeze(x, 0)), 0);
}

Interval Windows::near_at(int d, const Coord& at) const {
  const auto f = static_cast<size_t>(
      c_.decision.rule->rule().factor(near_[static_cast<size_t>(d)]));
  IntervalList ranges;
  c_.decision.assignment.dims[f].intervals(c_.mesh(), at, ranges);
  return ranges.empty() ? Interval{0, 0} : ranges[0];
}

Interval Windows::met_at(int d, const Coord& at) const {
  const Interval near = near_at(d, at);
  if (near.size() == 0) return {0, 0};
  return c_.decision.rule->windows()[static_cast<size_t>(d)].met(near);
}

void add_windows(BoundRule& rule, const WindowSizes& sizes, bool x_is_near,
                 std::string_view near, std::string_view far) {
  for (int d = 0; d < sizes.taps.size(); ++d) {
    const int64_t stride = sizes.stride[d], pad = sizes.pad[d],
                  span = (sizes.taps[d] - 1) * sizes.dilation[d];
    const char n = near[static_cast<size_t>(d)],
               f = far[static_cast<size_t>(d)];
    const int64_t size = rule.size(rule.rule().factor(f));
    rule.add_window(n, f, [=](Interval near) {
      int64_t lo = near.lo * stride - pad;
      int64_t hi = (near.hi - 1) * stride - pad + span + 1;
      if (x_is_near) {
        lo = std::max<int64_t>(0, near.lo + pad - span + stride - 1) / stride;
        hi = (near.hi - 1 + pad) / stride + 1;
      }
      lo = std::clamp<int64_t>(lo, 0, size);
      return Interval{lo, std::clamp(hi, lo, size)};
    });
  }
}

Tensor Windows::with_halo(size_t input) const {
  const Spec* spec = c_.decision.in[input];
  const int space = sizes_.taps.size(), first = spec->shape().size() - space;
  AxisMask axes = 0;
  std::vector<AxisMask> depend;
  for (int d = 0; d < first; ++d) depend.push_back(spec->dim(d).axes());
  for (int d = 0; d < space; ++d) {
    const AxisMask far = c_.axes_of(far_[static_cast<size_t>(d)]);
    axes |= far;
    depend.push_back(far | c_.axes_of(near_[static_cast<size_t>(d)]));
  }
  Tensor part = c_.in[input];
  if (axes) {
    part = c_.fetch(
        part, axes, [&](const Coord& at) { return spec->region(at); },
        [&](const Coord& at) {
          Region r = spec->region(at);
          for (int d = 0; d < space; ++d) {
            const Interval i = met_at(d, at);
            r[static_cast<size_t>(first + d)] =
                i.size() > 0 ? IntervalList{i} : IntervalList{};
          }
          return r;
        },
        depend);
  } else {
    for (int d = 0; d < space; ++d) {
      const Interval i = met_at(d, c_.coord());
      part = part.slice(first + d, i.lo, i.hi);
    }
  }
  return part.to_contiguous();
}

}  // namespace dtensor
