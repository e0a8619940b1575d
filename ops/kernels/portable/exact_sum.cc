// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "dtensor/device/nest.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

template <class T>
void add(const ExactSum& a) {
  Nest nest(a.shape, 2);
  nest.set(0, a.strides, sizeof(T));
  nest.set(1, a.out_strides, sizeof(Exact));
  if (!nest.simplify()) return;
  char* base[2] = {static_cast<char*>(const_cast<void*>(a.in)),
                   static_cast<char*>(a.out)};
  const int last = nest.loops() - 1;
  const int64_t n = nest.n(last), in = nest.step(last, 0),
                out = nest.step(last, 1);
  const bool dense =
      std::is_same_v<T, float> && in == sizeof(float) && out == sizeof(Exact);
  nest.each(1, base, [&] {
    if (dense)
      return Exact::add_each(reinterpret_cast<Exact*>(base[1]),
                             reinterpret_cast<const float*>(base[0]), n);
    for (int64_t i = 0; i < n; ++i)
      reinterpret_cast<Exact*>(base[1] + i * out)
          ->add(static_cast<float>(
              *reinterpret_cast<const T*>(base[0] + i * in)));
  });
}

// The index of x's square among the counts, and what it adds there.
struct Square {
  uint64_t e, term;
};
Square square(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t e = bits >> 23 & 255;
  const uint64_t s =
      e == 255 ? 1 : (bits & 0x7fffff) | (e ? uint64_t{1} << 23 : 0);
  return {e, s * s};
}
Square square(double x) {
  const auto bits = std::bit_cast<uint64_t>(x * x);
  const auto exponent = static_cast<int64_t>(bits >> 52);
  const uint64_t s = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  // x^2 is s * 2^(exponent - 1075), and the unit of e is 2^(2 (e - 150)).
  const int64_t even = exponent - 1075 + 300, e = even >> 1;
  if (e > 254) return {255, 1};
  if (e >= 1) return {static_cast<uint64_t>(e), s << (even & 1)};
  return {1, e > -26 ? (s << (even & 1)) >> 2 * (1 - e) : 0};
}

template <class T>
void count(const ExactSquares& a) {
  const T* x = static_cast<const T*>(a.x);
  // The sum of so many terms, below 2^48 or 2^54, is below 2^64.
  constexpr int64_t kBlock = std::is_same_v<T, double> ? 1 << 10 : 1 << 16;
  for (int64_t from = 0; from < a.n; from += kBlock) {
    // Neighbours mostly have the same exponent. In one array, each of them
    // would wait until the sum of the one before it is stored.
    uint64_t sums[4][256] = {};
    const int64_t to = std::min(a.n, from + kBlock);
    for (int64_t i = from; i < to; ++i) {
      const auto [e, term] = square(portable::widened(x[i]));
      sums[i % 4][e] += term;
    }
    for (int e = 0; e < 256; ++e) {
      const uint64_t sum = sums[0][e] + sums[1][e] + sums[2][e] + sums[3][e];
      const uint64_t low =
          static_cast<uint64_t>(a.counts[2 * e + 1]) + (sum & 0xffffffff);
      a.counts[2 * e] += static_cast<int64_t>((sum >> 32) + (low >> 32));
      a.counts[2 * e + 1] = static_cast<int64_t>(low & 0xffffffff);
    }
  }
}

template <class S>
void exp_units(Stream s, const ExpUnits& a) {
  portable::rows(
      s, a.x.rows, a.x.n,
      DT_BODY(portable::Row & row, int64_t r) {
        const int64_t n = a.x.n;
        const float max = static_cast<const float*>(a.max)[r];
        float* const e = row.template fast<float>();
        row.map(
            n, e, [max](auto v) { return exp_softmax(v - max); },
            row_at<S>(a.x, r));
        int64_t sum = 0, nans = 0;
        for (int64_t i = 0; i < n; ++i) {
          const bool is_nan = e[i] != e[i];
          const double x = is_nan ? 0 : static_cast<double>(e[i]);
          sum += static_cast<int64_t>(x * (1 / ExpUnits::kUnit));
          nans += is_nan;
        }
        a.sums[r] = sum;
        a.nans[r] = nans;
      },
      a.x.n * static_cast<int64_t>(sizeof(float)));
}

// For f32, bf16 and f16 on the CPU.
template <class Fn>
void visit_narrow(DType t, const char* kernel, Fn&& fn) {
  if (!portable::kManyPasses) no_kernel(kernel, t);
  switch (t) {
    case DType::kF32:
      return fn.template operator()<float>();
    case DType::kBF16:
      return fn.template operator()<bf16>();
    case DType::kF16:
      return fn.template operator()<f16>();
    default:
      no_kernel(kernel, t);
  }
}

}  // namespace

DT_KERNEL(ExactSum)
void run(Stream, const ExactSum& a) {
  visit_narrow(a.type, "exact_sum", [&]<class T>() { add<T>(a); });
}

DT_KERNEL(ExpUnits)
void run(Stream s, const ExpUnits& a) {
  visit_narrow(a.x.type, "exp_units", [&]<class T>() { exp_units<T>(s, a); });
}

DT_KERNEL(ExactSquares)
void run(Stream, const ExactSquares& a) {
  visit_float(a.type, "exact_squares", [&]<class T>() { count<T>(a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
