// SPDX-License-Identifier: Apache-2.0
// Orthogonal factors by Eigen: QR, eigenvectors and singular vectors. Matrices
// are copied into Eigen's own, which are aligned, so that no bit of a result
// depends on an address.
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/kernels/portable/matrices.h"

namespace dtensor::kernels {
namespace cpu {

// As the kernel. See portable/svd.cc.
void svd_f32(const Svd&);
void svd_f64(Stream, const Svd&, void (*rotate)(Stream, const Svd&));

}  // namespace cpu

namespace {

template <class T>
using Columns = Eigen::Matrix<T, -1, -1>;

template <class From, class To>
void store(const Columns<From>& from, To* to) {
  const int64_t m = from.rows(), n = from.cols();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      to[i * n + j] = static_cast<To>(from.data()[j * m + i]);
}
template <class From, class To>
void load(const From* from, Columns<To>& to) {
  const int64_t m = to.rows(), n = to.cols();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      to.data()[j * m + i] = static_cast<To>(from[i * n + j]);
}

template <class T>
T largest(int64_t n, const T* x) {
  portable::Row row(nullptr);
  return largest_of(row, n, x);
}
template <class T>
void fill_nan(int64_t n, T* x) {
  std::fill_n(x, n, std::numeric_limits<T>::quiet_NaN());
}

template <class T>
void run_all(const Qr& a) {
  const int64_t m = a.m, n = a.n;
  if (n == 0) return;
  const auto* x = static_cast<const T*>(a.x);
  auto *q = static_cast<T*>(a.q), *r = static_cast<T*>(a.r);
  Columns<T> own(m, n);
  Eigen::Matrix<T, -1, 1> scale(n);
  Eigen::HouseholderQR<Columns<T>> made(m, n);
  for (int64_t at = 0; at < a.count; ++at, x += m * n, q += m * n, r += n * n) {
    if (!is_finite(largest(m * n, x))) {
      fill_nan(m * n, q);
      fill_nan(n * n, r);
    } else {
      load(x, own);
      // Eigen takes squares of elements. A power of 2 changes no other bit.
      for (int64_t j = 0; j < n; ++j) {
        T* const column = own.data() + j * m;
        scale[j] = scale_for(largest(m, column));
        for (int64_t i = 0; i < m; ++i) column[i] /= scale[j];
      }
      made.compute(own);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = i; j < n; ++j)
          r[i * n + j] = made.matrixQR()(i, j) * scale[j];
      own = made.householderQ() * Columns<T>::Identity(m, n);
      store(own, q);
    }
    for (int64_t i = 0; i < n; ++i) std::fill_n(r + i * n, i, T(0));
  }
}

template <class T>
void run_all(const Eigh& a) {
  const int64_t n = a.n;
  if (n == 0) return;
  const auto* x = static_cast<const T*>(a.x);
  auto *values = static_cast<T*>(a.values),
       *vectors = static_cast<T*>(a.vectors);
  Columns<T> own(n, n);
  Eigen::SelfAdjointEigenSolver<Columns<T>> made(n);
  for (int64_t at = 0; at < a.count;
       ++at, x += n * n, values += n, vectors += n * n) {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        own.data()[i * n + j] = symmetric(a.triangle, x, n, i, j);
    if (is_finite(largest(n * n, own.data())) &&
        made.compute(own).info() == Eigen::Success) {
      std::copy_n(made.eigenvalues().data(), n, values);
      own = made.eigenvectors();
      for (int64_t j = 0; j < n; ++j) own.col(j) *= sign_of(n, &own(0, j));
      store(own, vectors);
    } else {
      fill_nan(n, values);
      fill_nan(n * n, vectors);
    }
  }
}

// The eigenvectors of x^T x, those of the largest eigenvalues first.
class RightVectors {
 public:
  explicit RightVectors(int64_t n) : square_(n, n), eigen_(n) {}
  bool find(const Columns<double>& x, Columns<double>& v) {
    square_.noalias() = x.transpose() * x;
    if (eigen_.compute(square_).info() != Eigen::Success) return false;
    v = eigen_.eigenvectors().rowwise().reverse();
    return true;
  }

 private:
  Columns<double> square_;
  Eigen::SelfAdjointEigenSolver<Columns<double>> eigen_;
};

}  // namespace

DT_KERNEL(Qr)
void run(Stream, const Qr& a) {
  visit_wide(a.type, "qr", [&]<class T>() { run_all<T>(a); });
}

DT_KERNEL(Eigh)
void run(Stream, const Eigh& a) {
  visit_wide(a.type, "eigh", [&]<class T>() { run_all<T>(a); });
}

// The eigenvectors of x^T x are v. In f64, squaring costs at most 1e-8 of the
// largest singular value, less than f32 can show. The columns of x v are
// orthogonal up to that error; R of their QR factors has the singular values on
// its diagonal, and Q has orthonormal columns even where these are 0.
// Eigen 3.4's BDCSVD is no alternative: for some matrices of low rank, its
// vectors are not orthogonal, or it crashes.
void cpu::svd_f32(const Svd& a) {
  const int64_t m = a.m, n = a.n;
  if (n == 0) return;
  const auto* x = static_cast<const float*>(a.x);
  auto *s = static_cast<float*>(a.s), *u = static_cast<float*>(a.u),
       *v = static_cast<float*>(a.v);
  using Matrix = Columns<double>;
  Matrix own(m, n), right(n, n);
  RightVectors eigen(n);
  Eigen::HouseholderQR<Matrix> made(m, n);
  std::vector<double> size(static_cast<size_t>(n));
  for (int64_t at = 0; at < a.count;
       ++at, x += m * n, s += n, u += m * n, v += n * n) {
    bool good = is_finite(largest(m * n, x));
    if (good) {
      load(x, own);
      good = eigen.find(own, right);
    }
    if (!good) {
      fill_nan(n, s);
      fill_nan(m * n, u);
      fill_nan(n * n, v);
      continue;
    }
    made.compute(own * right);
    own = made.householderQ() * Matrix::Identity(m, n);
    for (int64_t j = 0; j < n; ++j)
      size[static_cast<size_t>(j)] = std::abs(made.matrixQR()(j, j));
    for (int64_t j = 0; j < n; ++j) {
      const int64_t to = place_in_order(size.data(), n, 1, j, true);
      const double of_v = sign_of(n, &right(0, j)),
                   of_u = made.matrixQR()(j, j) < 0 ? -of_v : of_v;
      s[to] = static_cast<float>(size[static_cast<size_t>(j)]);
      for (int64_t i = 0; i < m; ++i)
        u[i * n + to] = static_cast<float>(of_u * own(i, j));
      for (int64_t i = 0; i < n; ++i)
        v[i * n + to] = static_cast<float>(of_v * right(i, j));
    }
  }
}

// The columns of x v are almost orthogonal for these v, so that one or two
// passes of rotations are left of about ten.
void cpu::svd_f64(Stream stream, const Svd& a,
                  void (*rotate)(Stream, const Svd&)) {
  const int64_t m = a.m, n = a.n;
  const auto* x = static_cast<const double*>(a.x);
  auto *s = static_cast<double*>(a.s), *u = static_cast<double*>(a.u),
       *v = static_cast<double*>(a.v);
  Columns<double> own(m, n), right(n, n), turn(n, n);
  std::vector<double> turned(static_cast<size_t>(m * n));
  RightVectors eigen(n);
  Svd rest = a;
  rest.count = 1;
  for (int64_t at = 0; at < a.count;
       ++at, x += m * n, s += n, u += m * n, v += n * n) {
    rest.x = x, rest.s = s, rest.u = u, rest.v = v;
    const double size = largest(m * n, x), scale = scale_for(size);
    if (is_finite(size)) {
      load(x, own);
      own /= scale;
    }
    if (!is_finite(size) || !eigen.find(own, right)) {
      rotate(stream, rest);
      continue;
    }
    own = own * right;
    store(own, turned.data());
    rest.x = turned.data();
    rotate(stream, rest);
    for (int64_t i = 0; i < n; ++i) s[i] *= scale;
    load(v, turn);
    turn = right * turn;
    for (int64_t j = 0; j < n; ++j) {
      const double sign = sign_of(n, &turn(0, j));
      turn.col(j) *= sign;
      for (int64_t i = 0; i < m; ++i) u[i * n + j] *= sign;
    }
    store(turn, v);
  }
}

}  // namespace dtensor::kernels
