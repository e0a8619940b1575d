// Rotary position embedding.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::Row;

// Identifies a table. A model needs the same one for queries and keys, in each
// layer, forward and backward.
struct Angles {
  int64_t s, d, offset;
  double theta;
  bool operator==(const Angles&) const = default;
};

// The cosines of the angles, [s, d / 2], then their sines. A thread computes a
// frequency once for kRows positions.
constexpr int64_t kRows = 16;

template <class C>
void fill_table(Stream stream, const Angles& a, C* table) {
  const int64_t half = a.d / 2, size = a.s * half;
  portable::each(
      stream, (a.s + kRows - 1) / kRows * half, DT_BODY(int64_t e) {
        const int64_t i = e % half, first = e / half * kRows,
                      end = first + kRows < a.s ? first + kRows : a.s;
        const double frequency = fn::pow(
            a.theta, -2.0 * static_cast<double>(i) / static_cast<double>(a.d));
        for (int64_t r = first; r < end; ++r) {
          const double angle = static_cast<double>(a.offset + r) * frequency;
          table[r * half + i] = static_cast<C>(fn::cos(angle));
          table[size + r * half + i] = static_cast<C>(fn::sin(angle));
        }
      });
}

template <class S, class C = compute_t<S>>
void rotate(Stream stream, const Rotary& a) {
  const int64_t half = a.d / 2, size = a.s * half;
  const Angles angles{a.s, a.d, a.position_offset, a.theta};
  const portable::Kept<C, Angles> table(
      stream, angles, 2 * size, [&](C* to) { fill_table(stream, angles, to); });
  const C* const cosines = table.data();
  const C sign = a.inverse ? C(-1) : C(1);
  // A row has all heads of a position, which share its angles. On the host it
  // has all positions of a head instead if they are closer in memory.
  const bool by_head =
      portable::kManyPasses && a.out.strides[1] > a.out.strides[2];
  const int outer = by_head ? 1 : 2, inner = 3 - outer;
  const int64_t outers = by_head ? a.h : a.s, inners = by_head ? a.s : a.h;
  portable::rows(
      stream, a.b * outers, half, DT_BODY(Row & row, int64_t r) {
        const int64_t b = r / outers, at = r % outers;
        const auto &from = a.x.strides, &to = a.out.strides;
        const S* x =
            static_cast<const S*>(a.x.data) + b * from[0] + at * from[outer];
        S* out = static_cast<S*>(a.out.data) + b * to[0] + at * to[outer];
        const C* cosine = cosines + (by_head ? 0 : at * half);
        for (int64_t k = 0; k < inners; ++k) {
          row.map_two(
              half, out, out + half,
              [&](auto u, auto v, auto c, auto s) {
                const auto turned = s * sign;
                return portable::Two<decltype(u)>{u * c - v * turned,
                                                  v * c + u * turned};
              },
              x, x + half, cosine, cosine + size);
          x += from[inner];
          out += to[inner];
          if (by_head) cosine += half;
        }
      });
}

}  // namespace

void PortableKernels::run(Stream s, const Rotary& a) const {
  check_rotary(a);
  if (a.d == 0 || a.s == 0) return;
  visit_float(a.type, "rotary", [&]<class S>() { rotate<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
