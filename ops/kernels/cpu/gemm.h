// SPDX-License-Identifier: Apache-2.0
// One matrix product in the compute type. Private to ops/kernels.
#pragma once
#include <cstdint>

namespace dtensor::kernels::cpu {

// A matrix with arbitrary strides.
template <class T>
struct Mat {
  T* p;
  int64_t row, col;
  Mat transposed() const { return {p, col, row}; }
};

// c[m,n] = a[m,k] * b[k,n], or c += with `accumulate`. T is float or double.
// oneDNN (float) or Eigen (double) computes most products that are not small.
template <class T>
void gemm2d(int64_t m, int64_t n, int64_t k, Mat<const T> a, Mat<const T> b,
            Mat<T> c, bool accumulate);

}  // namespace dtensor::kernels::cpu
