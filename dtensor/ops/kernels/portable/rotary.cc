// Rotary embedding.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::widened;

template <class T>
void fill_table(Stream stream, int64_t s, int64_t d, double theta,
                const int64_t* positions, int64_t offset, T* cos, T* sin) {
  const int64_t half = d / 2;
  each(
      stream, s * half, DT_BODY(int64_t e) {
        const int64_t r = e / half, i = e % half;
        const auto position =
            static_cast<double>(positions ? positions[r] : r + offset);
        const double frequency = fn::pow(
            theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
        const double angle = position * frequency;
        cos[e] = static_cast<T>(fn::cos(angle));
        sin[e] = static_cast<T>(fn::sin(angle));
      });
}

template <class S, class C = compute_t<S>>
void rotate(Stream stream, const Rotary& a, const C* cos, const C* sin) {
  const int64_t half = a.d / 2;
  rows(
      stream, a.b * a.h * a.s, a.d, DT_BODY(Row & row, int64_t r) {
        const int64_t i = r % a.s, h = r / a.s % a.h, b = r / a.s / a.h;
        const S* x = static_cast<const S*>(a.x) + b * a.x_strides[0] +
                     h * a.x_strides[1] + i * a.x_strides[2];
        S* out = static_cast<S*>(a.out) + b * a.out_strides[0] +
                 h * a.out_strides[1] + i * a.out_strides[2];
        const C* c = cos + i * half;
        const C* s = sin + i * half;
        row.each(half, [&](int64_t j) {
          const C x1 = widened(x[j]), x2 = widened(x[half + j]);
          const C cosine = c[j], sine = a.inverse ? -s[j] : s[j];
          out[j] = rounded<S>(x1 * cosine - x2 * sine);
          out[half + j] = rounded<S>(x2 * cosine + x1 * sine);
        });
      });
}

}  // namespace

void PortableKernels::rotary_table(Stream stream, DType stat, int64_t s,
                                   int64_t d, double theta,
                                   const int64_t* positions,
                                   int64_t position_offset, void* cos,
                                   void* sin) const {
  if (stat == DType::kF64)
    fill_table(stream, s, d, theta, positions, position_offset,
               static_cast<double*>(cos), static_cast<double*>(sin));
  else
    fill_table(stream, s, d, theta, positions, position_offset,
               static_cast<float*>(cos), static_cast<float*>(sin));
}

void PortableKernels::rotary(Stream stream, DType t, const Rotary& a) const {
  check_rotary(a);
  visit_float(t, "rotary", [&]<class S>() {
    using C = compute_t<S>;
    if (a.d == 0) return;
    if (a.cos)
      return rotate<S>(stream, a, static_cast<const C*>(a.cos),
                       static_cast<const C*>(a.sin));
    const int64_t size = a.s * (a.d / 2);
    Scratch table(stream, 2 * size * static_cast<int64_t>(sizeof(C)));
    C* cos = table.template as<C>();
    fill_table(stream, a.s, a.d, a.theta, a.positions, a.position_offset, cos,
               cos + size);
    rotate<S>(stream, a, cos, cos + size);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
