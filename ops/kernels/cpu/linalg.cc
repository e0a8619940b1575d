// SPDX-License-Identifier: Apache-2.0
// Triangular factors and the systems of equations that they solve, and the
// exponential of a matrix, by Eigen. Matrices are copied into Eigen's own,
// which are aligned, so that no bit of a result depends on an address.
#include "dtensor/ops/kernels/linalg.h"

#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <cmath>

#include "dtensor/ops/kernels/portable/matrices.h"

namespace dtensor::kernels {
namespace {

template <class T>
using Rows = Eigen::Matrix<T, -1, -1, Eigen::RowMajor>;

template <class T>
void load(const T* from, Rows<T>& to) {
  if (to.size() > 0) std::copy_n(from, to.size(), to.data());
}
template <class T>
void store(const Rows<T>& from, T* to) {
  if (from.size() > 0) std::copy_n(from.data(), from.size(), to);
}

template <class T>
void run_all(const Cholesky& a) {
  const int64_t n = a.n;
  const auto* x = static_cast<const T*>(a.x);
  auto* l = static_cast<T*>(a.l);
  Rows<T> made(n, n);
  for (int64_t r = 0; r < a.count; ++r, x += n * n, l += n * n) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        made(i, j) = j > i ? T(0) : symmetric(a.triangle, x, n, i, j);
    // Eigen::LLT does not tell which pivot is not positive.
    const int64_t stopped =
        Eigen::internal::llt_inplace<T, Eigen::Lower>::blocked(made);
    // It goes on after a pivot that is NaN.
    int64_t good = 0;
    const int64_t most = stopped < 0 ? n : stopped;
    while (good < most && made(good, good) > 0) ++good;
    a.failed[r] = good < n ? good + 1 : 0;
    store(made, l);
  }
}

template <class T>
void run_all(const Lu& a) {
  const int64_t n = a.n;
  const auto* x = static_cast<const T*>(a.x);
  auto* lu = static_cast<T*>(a.lu);
  Rows<T> own(n, n);
  Eigen::PartialPivLU<Rows<T>> made(n);
  for (int64_t r = 0; r < a.count; ++r, x += n * n, lu += n * n) {
    load(x, own);
    made.compute(own);
    store(made.matrixLU(), lu);
    const auto& places = made.permutationP().indices();
    for (int64_t i = 0; i < n; ++i) a.order[r * n + places[i]] = i;
    static_cast<T*>(a.parity)[r] =
        static_cast<T>(made.permutationP().determinant());
    int64_t good = 0;
    while (good < n && lu[good * n + good] != 0) ++good;
    a.failed[r] = good < n ? good + 1 : 0;
  }
}

template <class T>
void run_all(const SolveTriangular& a) {
  const int64_t n = a.n, k = a.k;
  const auto *t = static_cast<const T*>(a.t), *b = static_cast<const T*>(a.b);
  auto* x = static_cast<T*>(a.x);
  Rows<T> made(n, k);
  for (int64_t r = 0; r < a.count; ++r, t += n * n, b += n * k, x += n * k) {
    const Eigen::Map<const Rows<T>> factor(t, n, n);  // read in packed blocks
    if (a.order) {
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(b + a.order[r * n + i] * k, k, made.data() + i * k);
    } else {
      load(b, made);
    }
    if (a.upper && a.unit)
      factor.template triangularView<Eigen::UnitUpper>().solveInPlace(made);
    else if (a.upper)
      factor.template triangularView<Eigen::Upper>().solveInPlace(made);
    else if (a.unit)
      factor.template triangularView<Eigen::UnitLower>().solveInPlace(made);
    else
      factor.template triangularView<Eigen::Lower>().solveInPlace(made);
    store(made, x);
  }
}

template <class T>
void run_all(const MatrixExp& a) {
  const int64_t n = a.n;
  const auto* x = static_cast<const T*>(a.x);
  auto* y = static_cast<T*>(a.y);
  Rows<T> scaled(n, n), made(n, n), next(n, n);
  for (int64_t r = 0; r < a.count; ++r, x += n * n, y += n * n) {
    // The largest sum of |x| in a row; NaN if any is.
    double size = 0;
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += std::abs(x[i * n + j]);
      if (!(sum <= size)) size = sum;
      if (!is_finite(size)) break;
    }
    if (!is_finite(size)) {
      std::fill_n(y, n * n, static_cast<T>(size - size));
      continue;
    }
    // A sum of at most 1/2 leaves 1/2^17 / 17! after 16 terms.
    constexpr int kTerms = 16;
    int squarings = 0;
    double factor = 1;
    for (; size > 0.5; size /= 2, factor /= 2) ++squarings;
    for (int64_t i = 0; i < n * n; ++i)
      scaled.data()[i] = static_cast<T>(x[i] * factor);
    made.setIdentity();
    for (int k = kTerms; k >= 1; --k) {
      next.noalias() = scaled * made;
      next *= T(1) / static_cast<T>(k);
      next.diagonal().array() += T(1);
      made.swap(next);
    }
    for (int i = 0; i < squarings; ++i) {
      next.noalias() = made * made;
      made.swap(next);
    }
    store(made, y);
  }
}

}  // namespace

DT_KERNEL(Cholesky)
void run(Stream, const Cholesky& a) {
  visit_wide(a.type, "cholesky", [&]<class T>() { run_all<T>(a); });
}

DT_KERNEL(Lu)
void run(Stream, const Lu& a) {
  visit_wide(a.type, "lu", [&]<class T>() { run_all<T>(a); });
}

DT_KERNEL(SolveTriangular)
void run(Stream, const SolveTriangular& a) {
  visit_wide(a.type, "solve_triangular", [&]<class T>() { run_all<T>(a); });
}

DT_KERNEL(MatrixExp)
void run(Stream, const MatrixExp& a) {
  visit_wide(a.type, "matrix_exp", [&]<class T>() { run_all<T>(a); });
}

}  // namespace dtensor::kernels
