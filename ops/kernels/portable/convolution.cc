// SPDX-License-Identifier: Apache-2.0
// Convolutions as plain loops. oneDNN makes most of them on the CPU.
#include "dtensor/ops/kernels/convolution.h"

#include <type_traits>

#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/windows.h"

namespace dtensor::kernels {
namespace cpu {

// Returns false, without a result, if oneDNN has no such convolution.
bool convolution(const Convolution&);

}  // namespace cpu

inline namespace DT_PORTABLE {
namespace {

// Integers wrap around.
template <class S>
using sum_t =
    std::conditional_t<std::is_integral_v<S>, uint64_t, portable::compute_t<S>>;
using portable::index;
using portable::place;
using portable::Space;
using portable::to_x;
using portable::to_y;
using portable::volume;

template <class S, class C = sum_t<S>>
void make_y(Stream s, const Convolution& a) {
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel),
                outs = a.groups * a.o;
  const auto* x = static_cast<const S*>(a.x);
  const auto* weight = static_cast<const S*>(a.weight);
  const auto* bias = static_cast<const S*>(a.bias);
  S* const y = static_cast<S*>(a.made);
  portable::each(
      s, a.b * outs * out, DT_BODY(int64_t e) {
        const int64_t channel = e / out % outs, b = e / out / outs;
        const Space m = place(a.out, e % out);
        const S* from = x + (b * a.groups + channel / a.o) * a.c * in;
        const S* w = weight + channel * a.c * taps;
        C sum = bias ? static_cast<C>(bias[channel]) : C(0);
        for (int64_t t = 0; t < taps; ++t) {
          Space i;
          if (!to_x(a, m, place(a.kernel, t), i)) continue;
          const int64_t at = index(a.in, i);
          for (int64_t c = 0; c < a.c; ++c)
            sum += static_cast<C>(from[c * in + at]) *
                   static_cast<C>(w[c * taps + t]);
        }
        y[e] = static_cast<S>(sum);
      });
}

template <class S, class C = sum_t<S>>
void make_x(Stream s, const Convolution& a) {
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel),
                ins = a.groups * a.c;
  const auto* y = static_cast<const S*>(a.y);
  const auto* weight = static_cast<const S*>(a.weight);
  S* const x = static_cast<S*>(a.made);
  portable::each(
      s, a.b * ins * in, DT_BODY(int64_t e) {
        const int64_t channel = e / in % ins, b = e / in / ins;
        const int64_t g = channel / a.c, c = channel % a.c;
        const Space i = place(a.in, e % in);
        const S* from = y + (b * a.groups + g) * a.o * out;
        const S* w = weight + (g * a.o * a.c + c) * taps;
        C sum = C(0);
        for (int64_t t = 0; t < taps; ++t) {
          Space m;
          if (!to_y(a, i, place(a.kernel, t), m)) continue;
          const int64_t at = index(a.out, m);
          for (int64_t o = 0; o < a.o; ++o)
            sum += static_cast<C>(from[o * out + at]) *
                   static_cast<C>(w[o * a.c * taps + t]);
        }
        x[e] = static_cast<S>(sum);
      });
}

template <class S, class C = sum_t<S>>
void make_weight(Stream s, const Convolution& a) {
  const int64_t out = volume(a.out), in = volume(a.in), taps = volume(a.kernel);
  const auto* x = static_cast<const S*>(a.x);
  const auto* y = static_cast<const S*>(a.y);
  S* const weight = static_cast<S*>(a.made);
  portable::each(
      s, a.groups * a.o * a.c * taps, DT_BODY(int64_t e) {
        const int64_t channel = e / taps / a.c, c = e / taps % a.c;
        const int64_t g = channel / a.o;
        const Space k = place(a.kernel, e % taps);
        C sum = C(0);
        for (int64_t b = 0; b < a.b; ++b) {
          const S* from = x + ((b * a.groups + g) * a.c + c) * in;
          const S* dy = y + (b * a.groups * a.o + channel) * out;
          for (int64_t m = 0; m < out; ++m) {
            Space i;
            if (to_x(a, place(a.out, m), k, i))
              sum +=
                  static_cast<C>(from[index(a.in, i)]) * static_cast<C>(dy[m]);
          }
        }
        weight[e] = static_cast<S>(sum);
      });
}

}  // namespace

DT_KERNEL(Convolution)
void run(Stream s, const Convolution& a) {
#if !defined(__CUDACC__) && !defined(DT_CUDA_EMULATED)
  if (cpu::convolution(a)) return;
#endif
  using Makes = Convolution::Makes;
  visit_numbers(a.type, "convolution", [&]<class S>() {
    if (a.makes == Makes::kY)
      make_y<S>(s, a);
    else if (a.makes == Makes::kX)
      make_x<S>(s, a);
    else
      make_weight<S>(s, a);
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
