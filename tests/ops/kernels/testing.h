// SPDX-License-Identifier: Apache-2.0
// Elements of any type in memory, for the tests of kernels.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/kernels/operands.h"
#include "dtensor/placement/dtype.h"
#include "dtensor/placement/shape.h"

namespace dtensor::kernels {

// The kernels that the test is linked with.
const Kernels& under_test();
// A number of elements that these kernels compute as several vectors, or packs
// of a GPU's thread, and some elements more.
int64_t vectors_and_more();
// Runs a kernel of under_test().
template <class Kernel>
void run(const Kernel& kernel) {
  under_test().run({}, kernel);
}

inline constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kBF16,
                                    DType::kF16};
inline constexpr DType kAll[] = {DType::kF32, DType::kF64, DType::kBF16,
                                 DType::kF16, DType::kI32, DType::kI64,
                                 DType::kBool};

// The largest error allowed, relative to the larger of 1 and the expected
// value.
inline double tolerance(DType t) {
  return t == DType::kF64   ? 1e-12
         : t == DType::kF32 ? 3e-6
         : t == DType::kF16 ? 1.0 / 1024
                            : 1.0 / 128;
}

// n elements in memory of exactly that size, so that the address sanitizer sees
// every access beyond it.
class Elements {
 public:
  Elements(DType t, int64_t n, double value = 0);
  Elements(DType t, std::initializer_list<double> values)
      : Elements(t, std::vector<double>(values)) {}
  Elements(DType t, const std::vector<double>& values);
  // Uniform in [lo, hi), rounded to the type (integers: whole numbers).
  static Elements random(DType t, int64_t n, double lo = -2, double hi = 2,
                         unsigned seed = 1);

  DType type() const { return type_; }
  int64_t size() const { return n_; }
  void* data() { return raw_.empty() ? nullptr : raw_.data(); }
  const void* data() const { return raw_.empty() ? nullptr : raw_.data(); }
  // The address of element i.
  void* at(int64_t i) { return raw_.data() + i * size_of(type_); }

  double operator[](int64_t i) const;
  void set(int64_t i, double v);
  std::vector<double> doubles() const;

 private:
  DType type_;
  int64_t n_;
  std::vector<char> raw_;
};

// Rows of n elements, which begin `stride` elements apart.
inline Matrix matrix(const Elements& x, int64_t rows, int64_t n,
                     int64_t stride) {
  return {x.type(), rows, n, x.data(), stride};
}
inline Matrix matrix(const Elements& x, int64_t rows, int64_t n) {
  return matrix(x, rows, n, n);
}

// Expects each element within tol times the larger of 1 and the wanted value.
// NaN and infinities must match.
testing::AssertionResult near(const Elements& got,
                              const std::vector<double>& want, double tol);
inline testing::AssertionResult near(const Elements& got,
                                     const std::vector<double>& want) {
  return near(got, want, tolerance(got.type()));
}

// The number of elements that a shape with strides spans.
inline int64_t span_of(const Shape& shape, const Shape& strides) {
  int64_t r = 1;
  for (int i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    r += (shape[i] - 1) * strides[i];
  }
  return r;
}

// Calls f(i, offset) for the i-th element of the shape in row-major order.
template <class F>
void for_elements(const Shape& shape, const Shape& strides, F&& f) {
  Shape index = Shape::filled(shape.size(), 0);
  for (int64_t i = 0; i < numel(shape); ++i) {
    int64_t at = 0;
    for (int d = 0; d < shape.size(); ++d) at += index[d] * strides[d];
    f(i, at);
    for (int d = shape.size() - 1; d >= 0; --d) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}
// The elements in row-major order.
inline std::vector<double> gathered(const Elements& a, const Shape& shape,
                                    const Shape& strides) {
  std::vector<double> r;
  for_elements(shape, strides,
               [&](int64_t, int64_t at) { r.push_back(a[at]); });
  return r;
}

struct Layout {
  Shape shape, strides;
};
// Layouts with awkward sizes; some are transposed, strided or broadcast.
inline std::vector<Layout> layouts() {
  return {
      {{}, {}},
      {{0}, {1}},
      {{1}, {1}},
      {{7}, {1}},
      {{64}, {1}},
      {{1031}, {1}},
      {{1031}, {3}},
      {{1500}, {0}},
      {{5, 0, 3}, {3, 3, 1}},
      {{8, 8}, {8, 1}},
      {{13, 17}, {1, 13}},
      {{13, 600}, {0, 1}},
      {{600, 13}, {1, 0}},
      {{3, 5, 37}, {185, 37, 1}},
      {{3, 5, 37}, {1, 111, 3}},
      {{3, 5, 37}, {400, 0, 2}},
      {{2, 3, 2, 5, 2, 3}, {1, 2, 6, 12, 60, 120}},
  };
}

}  // namespace dtensor::kernels
