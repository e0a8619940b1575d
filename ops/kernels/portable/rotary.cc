// Rotary position embedding.
#include <array>
#include <cmath>

#include "dtensor/device/portable/walk.h"
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::aligned;
using portable::compute_t;
using portable::each;
using portable::load;
using portable::Pack;
using portable::rounded;
using portable::Scratch;
using portable::store;
using portable::Walk;
using portable::widened;

// An angle, as its cosine and sine.
struct Turn {
  double cos, sin;
};

DT_HD Turn turn_by(double angle) { return {fn::cos(angle), fn::sin(angle)}; }

// fma() fixes which product is rounded. Otherwise the compiler's choice could
// depend on the surrounding code, and with it the bits of a position.
DT_HD Turn operator*(const Turn& a, const Turn& b) {
  return {std::fma(a.cos, b.cos, -(a.sin * b.sin)),
          std::fma(a.sin, b.cos, a.cos * b.sin)};
}

DT_HD double frequency_of(int64_t i, int64_t d, double theta) {
  return fn::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
}

// Powers and sines in f64 are expensive, so they are computed only for the
// first of kRows positions and for one step; the other positions follow by
// rotation. The first position is a multiple of kRows, so that a position's
// sines have the same bits in every part of a sequence.
constexpr int64_t kRows = 16;

DT_HD int64_t first_of(int64_t position) { return position & -kRows; }

template <class T>
void fill_table(Stream stream, const RotaryTable& a) {
  const int64_t half = a.d / 2, offset = a.position_offset;
  auto *cos = static_cast<T*>(a.cos), *sin = static_cast<T*>(a.sin);
  const auto put = DT_BODY(int64_t e, const Turn& turn) {
    cos[e] = static_cast<T>(turn.cos);
    sin[e] = static_cast<T>(turn.sin);
  };
  if (a.positions)
    return each(
        stream, a.s * half, DT_BODY(int64_t e) {
          const int64_t position = a.positions[e / half];
          const double f = frequency_of(e % half, a.d, a.theta);
          Turn turn = turn_by(static_cast<double>(first_of(position)) * f);
          const Turn step = turn_by(f);
          for (int64_t k = first_of(position); k < position; ++k)
            turn = turn * step;
          put(e, turn);
        });
  const int64_t first = first_of(offset),
                blocks = a.s == 0
                             ? 0
                             : (first_of(offset + a.s - 1) - first) / kRows + 1;
  each(
      stream, blocks * half, DT_BODY(int64_t e) {
        const int64_t i = e % half, position = first + e / half * kRows;
        const double f = frequency_of(i, a.d, a.theta);
        Turn turn = turn_by(static_cast<double>(position) * f);
        const Turn step = turn_by(f);
        for (int64_t k = 0; k < kRows; ++k) {
          const int64_t row = position + k - offset;
          if (row >= 0 && row < a.s) put(row * half + i, turn);
          turn = turn * step;
        }
      });
}

// W elements of a table, which is aligned to packs.
template <int W, class C>
DT_HD Pack<C, W> load_table(const C* p) {
  constexpr int V = W < portable::kPack<C> ? W : portable::kPack<C>;
  Pack<C, W> all;
  DT_UNROLL(W)
  for (int w = 0; w < W; w += V) {
    const Pack<C, V> some = load<V>(p + w);
    for (int v = 0; v < V; ++v) all.v[w + v] = some.v[v];
  }
  return all;
}

// Each thread rotates W elements of each half, in the order of out's memory:
// heads that are neighbours in memory share their sines.
template <int W, class S, class C = compute_t<S>>
void rotate_packs(Stream stream, const Rotary& a, const C* cos, const C* sin) {
  const int64_t half = a.d / 2;
  const Shape shape = {a.b, a.h, a.s, half / W};
  const auto strides = [](const std::array<int64_t, 4>& of) {
    return Shape{of[0], of[1], of[2], W};
  };
  const Walk<3> walk(shape, {strides(a.out.strides), strides(a.x.strides),
                             Shape{0, 0, half, W}});
  const auto* from = static_cast<const S*>(a.x.data);
  auto* to = static_cast<S*>(a.out.data);
  const C sign = a.inverse ? C(-1) : C(1);
  each(
      stream, walk.count(), DT_BODY(int64_t i) {
        int64_t at[3];
        walk.at(i, at);
        const S* x = from + at[1];
        S* out = to + at[0];
        const Pack<S, W> x1 = load<W>(x), x2 = load<W>(x + half);
        const Pack<C, W> c = load_table<W>(cos + at[2]),
                         s = load_table<W>(sin + at[2]);
        Pack<S, W> y1, y2;
        DT_UNROLL(W)
        for (int w = 0; w < W; ++w) {
          const C v1 = widened(x1.v[w]), v2 = widened(x2.v[w]), cosine = c.v[w],
                  sine = sign * s.v[w];
          y1.v[w] = rounded<S>(v1 * cosine - v2 * sine);
          y2.v[w] = rounded<S>(v2 * cosine + v1 * sine);
        }
        store(out, y1);
        store(out + half, y2);
      });
}

template <class S, class C = compute_t<S>>
void rotate(Stream stream, const Rotary& a, const C* cos, const C* sin) {
  constexpr int W = portable::kPack<S>, V = portable::kPack<C>;
  bool packs = a.d / 2 % W == 0 &&
               aligned(static_cast<const S*>(a.x.data), W) &&
               aligned(static_cast<const S*>(a.out.data), W) &&
               aligned(cos, V) && aligned(sin, V);
  for (size_t i = 0; i < 3; ++i)
    packs &= a.x.strides[i] % W == 0 && a.out.strides[i] % W == 0;
  if (packs)
    rotate_packs<W, S>(stream, a, cos, sin);
  else
    rotate_packs<1, S>(stream, a, cos, sin);
}

}  // namespace

void PortableKernels::run(Stream s, const RotaryTable& a) const {
  if (a.type == DType::kF64)
    fill_table<double>(s, a);
  else
    fill_table<float>(s, a);
}

void PortableKernels::run(Stream s, const Rotary& a) const {
  check_rotary(a);
  visit_float(a.type, "rotary", [&]<class S>() {
    using C = compute_t<S>;
    if (a.d == 0) return;
    if (a.cos)
      return rotate<S>(s, a, static_cast<const C*>(a.cos),
                       static_cast<const C*>(a.sin));
    const int64_t size = a.s * (a.d / 2);
    Scratch table(s, 2 * size * static_cast<int64_t>(sizeof(C)));
    C* cos = table.template as<C>();
    fill_table<C>(s, table_for(a, stat_of(a.type), cos, cos + size));
    rotate<S>(s, a, cos, cos + size);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
