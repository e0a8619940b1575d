// SPDX-License-Identifier: Apache-2.0
// Factorisations of matrices, and systems of linear equations.
//
// Each kernel takes `count` matrices of f32 or f64, one after the other. All
// arrays are contiguous and row-major. The work of one matrix is not divided
// between blocks of a GPU. A NaN in a matrix spreads to that matrix's results.
// `work` is scratch; the CPU, which has Eigen for most kernels, may ignore it.
#pragma once
#include <cstdint>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// The elements that a kernel reads of a symmetric matrix: those of one
// triangle, or all, of which it takes (x + x^T) / 2.
enum class Triangle : uint8_t { kBoth, kLower, kUpper };

// l [n, n] is the lower triangle with l l^T = x, for symmetric x; 0 above the
// diagonal. failed [count] is 0, or 1 + the first row whose pivot is not
// positive; then l is no factor, and may have NaNs.
struct Cholesky {
  DType type = DType::kF32;
  int64_t count = 0, n = 0;
  Triangle triangle = Triangle::kLower;
  const void* x = nullptr;
  void* l = nullptr;
  int64_t* failed = nullptr;
};

// LU factors with partial pivoting: row order[i] of x is row i of L U. lu has U
// in its upper triangle, and L, whose diagonal is 1, below. parity [count] is 1
// or -1, the determinant of the permutation. failed [count] is 0, or 1 + the
// first row whose pivot is 0. lu may be x.
struct Lu {
  DType type = DType::kF32;
  int64_t count = 0, n = 0;
  const void* x = nullptr;
  void* lu = nullptr;
  int64_t* order = nullptr;  // [count, n]
  void* parity = nullptr;
  int64_t* failed = nullptr;
};

// Solves t x = b for x [n, k]. Only the lower or upper triangle of t [n, n] is
// read, and if `unit` is set its diagonal counts as 1. Row i of b is the row
// order[i] of the array, if `order` [count, n] is not null; then x must not be
// b. A 0 on the diagonal gives infinities and NaNs.
struct SolveTriangular {
  DType type = DType::kF32;
  int64_t count = 0, n = 0, k = 0;
  const void* t = nullptr;
  bool upper = false, unit = false;
  const void* b = nullptr;
  const int64_t* order = nullptr;
  void* x = nullptr;
};

// x [m, n] = q r, with m >= n, orthonormal columns in q [m, n], and an upper
// triangle r [n, n], by Householder's reflections. Signs are those of LAPACK.
struct Qr {
  DType type = DType::kF32;
  int64_t count = 0, m = 0, n = 0;
  const void* x = nullptr;
  void *q = nullptr, *r = nullptr;
  void* work = nullptr;  // [count, 2 m + 1, n]
};

// The eigenvalues of a symmetric matrix, smallest first, and its eigenvectors
// in the columns of vectors [n, n], by Jacobi's rotations or, on the CPU, by QR
// steps.
struct Eigh {
  DType type = DType::kF32;
  int64_t count = 0, n = 0;
  Triangle triangle = Triangle::kLower;
  const void* x = nullptr;
  void *values = nullptr, *vectors = nullptr;
  void* work = nullptr;  // [count, 2 n, n]
};

// x [m, n] = u diag(s) v^T, with m >= n, orthonormal columns in u [m, n] and
// v [n, n], and s [n], largest first, by one-sided rotations (Hestenes, SIAM
// Journal 6, 1958). The CPU begins with the eigenvectors of x^T x in f64, which
// for f32 leave no rotations.
struct Svd {
  DType type = DType::kF32;
  int64_t count = 0, m = 0, n = 0;
  const void* x = nullptr;
  void *s = nullptr, *u = nullptr, *v = nullptr;
  void* work = nullptr;  // [count, m + n + 1, n]
};

// The exponential of x [n, n], by a Taylor series of x / 2^s and s squarings.
struct MatrixExp {
  DType type = DType::kF32;
  int64_t count = 0, n = 0;
  const void* x = nullptr;
  void* y = nullptr;
  void* work = nullptr;  // [count, 2 n, n]
};

}  // namespace dtensor::kernels
