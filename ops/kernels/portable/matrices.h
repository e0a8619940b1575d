// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of linalg.h. A Row works on one matrix.
#pragma once
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {

// Calls fn.template operator()<T>() for f32 and f64; throws Error for others.
template <class Fn>
void visit_wide(DType t, std::string_view where, Fn&& fn) {
  if (t == DType::kF64) return fn.template operator()<double>();
  if (t != DType::kF32) no_kernel(where, t);
  fn.template operator()<float>();
}

// Calls f(i, j) for all i < m and j < n, in any order.
template <class F>
DT_HD void each_pair(auto& row, int64_t m, int64_t n, F f) {
  if constexpr (portable::kManyPasses) {
    for (int64_t i = 0; i < m; ++i) row.each(n, [&](int64_t j) { f(i, j); });
  } else {
    row.each(m * n, [&](int64_t at) { f(at / n, at % n); });
  }
}

// Element (i, j) of the symmetric matrix that `x` [n, n] stands for.
template <class T>
DT_HD T symmetric(Triangle triangle, const T* x, int64_t n, int64_t i,
                  int64_t j) {
  const T a = x[i * n + j], b = x[j * n + i];
  if (triangle == Triangle::kBoth) return (a + b) / 2;
  return (triangle == Triangle::kLower) == (i > j) ? a : b;
}

// A value and its index. The larger value wins, and of equal ones the first.
template <class T>
struct At {
  T value;
  int64_t index;
};
struct Largest {
  template <class T>
  DT_HD At<T> operator()(const At<T>& a, const At<T>& b) const {
    const bool first =
        a.value > b.value || (a.value == b.value && a.index < b.index);
    return first ? a : b;
  }
};

// The largest |x[i]|; NaN if any is.
template <class T>
DT_HD T largest_of(auto& row, int64_t n, const T* x) {
  return row.reduce(
      n, T(0), portable::Max(), [](int64_t, T v) { return fn::abs(v); }, x);
}
template <class T>
DT_HD bool is_finite(T x) {
  return x - x == 0;
}

// A power of 2 by which a matrix with this largest |x| is divided, so that no
// square of an element overflows, and no square that counts underflows.
template <class T>
DT_HD T scale_for(T largest) {
  return largest == 0 ? T(1) : fn::exp2(fn::floor(fn::log2(largest)));
}

// The sign that a vector is multiplied with, so that the first of its elements
// of at least 9/10 of the largest is positive. Then types and devices agree,
// where exactly the largest one may depend on rounding.
template <class T>
DT_HD T sign_of(int64_t n, const T* x, T largest) {
  for (int64_t i = 0; i < n; ++i)
    if (fn::abs(x[i]) >= largest * T(0.9)) return x[i] < 0 ? T(-1) : T(1);
  return T(1);
}
template <class T>
DT_HD T sign_of(int64_t n, const T* x) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = fn::abs(x[i]) > largest ? fn::abs(x[i]) : largest;
  return sign_of(n, x, largest);
}

// The scalar product of two rows, in f64.
template <class T>
DT_HD double dot(auto& row, int64_t n, const T* a, const T* b) {
  return row.reduce(
      n, 0.0, portable::Sum(),
      [](int64_t, T u, T v) {
        return static_cast<double>(u) * static_cast<double>(v);
      },
      a, b);
}

// The rotation by an angle: (a, b) -> (c a - s b, s a + c b).
template <class T>
struct Rotation {
  T c, s;
};
// The rotation that makes [[a, m], [m, b]] diagonal, and the tangent of its
// angle, which is at most 45 degrees. REQUIRES: m is not 0.
template <class T>
DT_HD Rotation<T> diagonalizing(double a, double b, double m, double* tangent) {
  const double cot = (b - a) / (2 * m);  // of twice the angle
  const double t = (cot < 0 ? -1 : 1) / (fn::abs(cot) + fn::hypot(cot, 1.0));
  const double c = 1 / fn::sqrt(t * t + 1);
  *tangent = t;
  return {static_cast<T>(c), static_cast<T>(t * c)};
}
template <class T>
DT_HD void rotate(auto& row, int64_t n, Rotation<T> by, T* a, T* b) {
  row.each(n, [&](int64_t k) {
    const T x = a[k], y = b[k];
    a[k] = by.c * x - by.s * y;
    b[k] = by.s * x + by.c * y;
  });
}

// How many elements of x [n] come before x[i], in the order of their values (or
// of -x, if `down` is set) and, if these are equal, of their indices. `stride`
// leads from one element to the next.
template <class T>
DT_HD int64_t place_in_order(const T* x, int64_t n, int64_t stride, int64_t i,
                             bool down) {
  int64_t before = 0;
  const T mine = x[i * stride];
  for (int64_t j = 0; j < n; ++j) {
    const T other = x[j * stride];
    before += (down ? other > mine : other < mine) || (other == mine && j < i);
  }
  return before;
}

// No iteration takes as many passes over all pairs of rows.
constexpr int kMostSweeps = 60;

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
