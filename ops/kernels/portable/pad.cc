// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/pad.h"

#include "dtensor/device/values.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;

// One dimension. x has n elements, `stride` apart, and y has `out`.
struct Side {
  int64_t n, stride, before, out;
  // The offset of the element of x that element i of y repeats.
  DT_HD int64_t at(int64_t i, Edge edge) const {
    i -= before;
    if (edge == Edge::kNearest)
      i = i < 0 ? 0 : i < n ? i : n - 1;
    else if (edge == Edge::kMirrored)
      i = i < 0 ? -i : i < n ? i : 2 * (n - 1) - i;
    else
      i = i < 0 ? i + n : i < n ? i : i - n;
    return i * stride;
  }
};
// Neighbours without borders are one dimension, if x's strides allow it.
struct Sides {
  explicit Sides(const PadEdges& a) {
    for (int d = 0; d < a.in.size(); ++d) {
      const Side next{a.in[d], a.strides[d], a.before[d], a.out[d]};
      Side& last = of[count > 0 ? count - 1 : 0];
      if (count > 0 && last.n == last.out && next.n == next.out &&
          last.stride == next.n * next.stride)
        last = {last.n * next.n, next.stride, 0, last.out * next.out};
      else
        of[count++] = next;
    }
  }
  int count = 0;
  Side of[kMaxDims];
};

template <class S>
void pad(Stream s, const PadEdges& a) {
  const Sides sides(a);
  const Edge edge = a.edge;
  const auto* x = static_cast<const S*>(a.x);
  auto* const y = static_cast<S*>(a.y);
  const int64_t n = sides.of[sides.count - 1].out;
  if (n == 0) return;
  rows(
      s, numel(a.out) / n, n, DT_BODY(Row & row, int64_t r) {
        const Side last = sides.of[sides.count - 1];
        const S* from = x;
        S* const to = y + r * n;
        for (int d = sides.count - 2; d >= 0; --d) {
          const Side side = sides.of[d];
          const int64_t outer = d > 0 ? r / side.out : 0;
          from += side.at(r - outer * side.out, edge);
          r = outer;
        }
        const int64_t end = last.before + last.n;
        row.each(last.before,
                 [&](int64_t j) { to[j] = from[last.at(j, edge)]; });
        if (last.stride == 1)
          row.copy(last.n, to + last.before, from);
        else
          row.each(last.n, [&](int64_t j) {
            to[last.before + j] = from[j * last.stride];
          });
        row.each(n - end, [&](int64_t j) {
          to[end + j] = from[last.at(end + j, edge)];
        });
      });
}

}  // namespace

DT_KERNEL(PadEdges)
void run(Stream s, const PadEdges& a) {
  switch (size_of(a.type)) {
    case 1:
      return pad<uint8_t>(s, a);
    case 2:
      return pad<uint16_t>(s, a);
    case 4:
      return pad<uint32_t>(s, a);
    case 8:
      return pad<uint64_t>(s, a);
    default:
      no_kernel("pad", a.type);
  }
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
