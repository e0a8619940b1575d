// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/rotary.h"

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::Row;

// Identifies a table of angles. A model needs the same table for queries and
// keys, in each layer, forward and backward.
struct Angles {
  Frequencies of;
  int64_t rows, offset;
  bool operator==(const Angles&) const = default;
};

DT_HD double frequency_of(const Frequencies& f, int64_t pair) {
  const double plain = fn::pow(
      f.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(f.dims));
  if (f.factor == 0) return plain;
  double kept = 0;  // the share that `factor` does not divide
  if (f.original_positions > 0) {
    constexpr double kTurn = 6.283185307179586;
    const double turns =
        static_cast<double>(f.original_positions) * plain / kTurn;
    kept =
        (turns - f.low_freq_factor) / (f.high_freq_factor - f.low_freq_factor);
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
  }
  return plain * ((1 - kept) / f.factor + kept);
}

// Writes the angles' cosines [rows, dims / 2], and then their sines. A thread
// computes a frequency once for kRows positions. `positions` may be null.
constexpr int64_t kRows = 16;

template <class C>
void fill_table(Stream stream, const Angles& a, const int64_t* positions,
                C* table) {
  const int64_t half = a.of.dims / 2, size = a.rows * half;
  portable::each(
      stream, (a.rows + kRows - 1) / kRows * half, DT_BODY(int64_t e) {
        const int64_t i = e % half, first = e / half * kRows,
                      end = first + kRows < a.rows ? first + kRows : a.rows;
        const double frequency = frequency_of(a.of, i);
        for (int64_t r = first; r < end; ++r) {
          const int64_t position = positions ? positions[r] : a.offset + r;
          const double angle = static_cast<double>(position) * frequency;
          table[r * half + i] = static_cast<C>(fn::cos(angle));
          table[size + r * half + i] = static_cast<C>(fn::sin(angle));
        }
      });
}

template <class S, class C>
void rotate(Stream stream, const Rotary& a, const C* cosines, int64_t size) {
  const int64_t half = a.of.dims / 2, rest = a.d - a.of.dims;
  const C sign = a.inverse ? C(-1) : C(1);
  // A row of lanes has all heads of a position, which share its angles. On the
  // host it has all positions of a head instead if these are closer in memory.
  const bool by_head =
      portable::kManyPasses && a.out.strides[1] > a.out.strides[2];
  const int outer = by_head ? 1 : 2, inner = 3 - outer;
  const int64_t outers = by_head ? a.h : a.s, inners = by_head ? a.s : a.h;
  // The distance from one sequence's angles to the next; 0 if they share them.
  const int64_t next = a.positions ? a.s * half : 0;
  portable::rows(
      stream, a.b * outers, a.d / 2, DT_BODY(Row & row, int64_t r) {
        const int64_t b = r / outers, at = r % outers;
        const auto &from = a.x.strides, &to = a.out.strides;
        const S* x =
            static_cast<const S*>(a.x.data) + b * from[0] + at * from[outer];
        S* out = static_cast<S*>(a.out.data) + b * to[0] + at * to[outer];
        const C* cosine = cosines + b * next + (by_head ? 0 : at * half);
        for (int64_t k = 0; k < inners; ++k) {
          row.map_two(
              half, out, out + half,
              [&](auto u, auto v, auto c, auto s) {
                const auto turned = s * sign;
                return portable::Two<decltype(u)>{u * c - v * turned,
                                                  v * c + u * turned};
              },
              x, x + half, cosine, cosine + size);
          if (rest > 0) row.copy(rest, out + 2 * half, x + 2 * half);
          x += from[inner];
          out += to[inner];
          if (by_head) cosine += half;
        }
      });
}

template <class S, class C = compute_t<S>>
void rotate(Stream stream, const Rotary& a) {
  const Angles angles{a.of, a.positions ? a.b * a.s : a.s, a.position_offset};
  const int64_t size = angles.rows * (a.of.dims / 2);
  const auto fill = [&](C* to) { fill_table(stream, angles, a.positions, to); };
  if (a.positions) {
    portable::Scratch table(stream, 2 * size * static_cast<int64_t>(sizeof(C)));
    fill(table.as<C>());
    return rotate<S>(stream, a, table.as<const C>(), size);
  }
  const portable::Kept<C, Angles> table(stream, angles, 2 * size, fill);
  rotate<S>(stream, a, table.data(), size);
}

}  // namespace

DT_KERNEL(Rotary)
void run(Stream s, const Rotary& a) {
  check_rotary(a);
  if (a.d == 0 || a.s == 0 || a.b == 0) return;
  visit_float(a.type, "rotary", [&]<class S>() { rotate<S>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
