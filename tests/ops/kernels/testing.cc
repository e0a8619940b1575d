// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/kernels/testing.h"

#include <cmath>
#include <cstring>
#include <random>

namespace dtensor::kernels {

Elements::Elements(DType t, int64_t n, double value)
    : type_(t), n_(n), raw_(static_cast<size_t>(n * size_of(t))) {
  if (value == 0) return;
  for (int64_t i = 0; i < n; ++i) set(i, value);
}

Elements::Elements(DType t, const std::vector<double>& values)
    : Elements(t, static_cast<int64_t>(values.size())) {
  for (int64_t i = 0; i < n_; ++i) set(i, values[static_cast<size_t>(i)]);
}

Elements Elements::random(DType t, int64_t n, double lo, double hi,
                          unsigned seed) {
  std::mt19937 rng(seed + static_cast<unsigned>(n));
  std::uniform_real_distribution<double> d(lo, hi);
  Elements a(t, n);
  for (int64_t i = 0; i < n; ++i)
    a.set(i, t == DType::kBool ? static_cast<double>(rng() % 2) : d(rng));
  return a;
}

double Elements::operator[](int64_t i) const {
  return visit_stored(type_, [&]<class T>() -> double {
    T x;
    std::memcpy(&x, raw_.data() + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    if constexpr (is_half<T>)
      return static_cast<float>(x);
    else
      return static_cast<double>(x);
  });
}

void Elements::set(int64_t i, double v) {
  visit_stored(type_, [&]<class T>() {
    T x;
    if constexpr (is_half<T>)
      x = T(static_cast<float>(v));
    else if constexpr (std::is_same_v<T, bool>)
      x = v != 0;
    else
      x = static_cast<T>(v);
    std::memcpy(raw_.data() + i * static_cast<int64_t>(sizeof(T)), &x,
                sizeof(T));
  });
}

std::vector<double> Elements::doubles() const {
  std::vector<double> r(static_cast<size_t>(n_));
  for (int64_t i = 0; i < n_; ++i) r[static_cast<size_t>(i)] = (*this)[i];
  return r;
}

testing::AssertionResult near(const Elements& got,
                              const std::vector<double>& want, double tol) {
  if (got.size() != static_cast<int64_t>(want.size()))
    return testing::AssertionFailure() << "sizes differ";
  for (int64_t i = 0; i < got.size(); ++i) {
    const double g = got[i], w = want[static_cast<size_t>(i)];
    const bool same =
        std::isnan(w)   ? std::isnan(g)
        : std::isinf(w) ? g == w
                        : std::fabs(g - w) <= tol * std::fmax(1, std::fabs(w));
    if (!same)
      return testing::AssertionFailure()
             << "element " << i << " is " << g << ", not " << w << " ("
             << name(got.type()) << ")";
  }
  return testing::AssertionSuccess();
}

}  // namespace dtensor::kernels
