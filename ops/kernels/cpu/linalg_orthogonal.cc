// SPDX-License-Identifier: Apache-2.0
// Orthogonal factors by Eigen: QR, eigenvectors and singular vectors. Matrices
// are copied into Eigen's own, which are aligned, so that no bit of a result
// depends on an address.
#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
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

// Calls f(i, j) for all elements, in an order in which neither rows nor columns
// are read a cache line for each element.
template <class F>
void each_element(int64_t m, int64_t n, F&& f) {
  constexpr int64_t kLine = 16;
  for (int64_t i0 = 0; i0 < m; i0 += kLine)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = i0; i < std::min(m, i0 + kLine); ++i) f(i, j);
}
template <class From, class To>
void store(const Columns<From>& from, To* to) {
  const int64_t m = from.rows(), n = from.cols();
  each_element(m, n, [&](int64_t i, int64_t j) {
    to[i * n + j] = static_cast<To>(from.data()[j * m + i]);
  });
}
template <class From, class To>
void load(const From* from, Columns<To>& to) {
  const int64_t m = to.rows(), n = to.cols();
  each_element(m, n, [&](int64_t i, int64_t j) {
    to.data()[j * m + i] = static_cast<To>(from[i * n + j]);
  });
}

template <class T>
T largest(int64_t n, const T* x) {
  portable::Row row(nullptr);
  return largest_of(row, n, x);
}
template <class T>
T sign_of_column(const Columns<T>& x, int64_t j) {
  return sign_of(x.rows(), &x(0, j), largest(x.rows(), &x(0, j)));
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
      for (int64_t j = 0; j < n; ++j) own.col(j) *= sign_of_column(own, j);
      store(own, vectors);
    } else {
      fill_nan(n, values);
      fill_nan(n * n, vectors);
    }
  }
}

// An object that a thread keeps for its next matrices of the same size: fresh
// memory for them would cost a sixth of the time.
template <class T>
T& kept(int64_t m, int64_t n) {
  static thread_local std::optional<T> last;
  if (!last || last->m != m || last->n != n) last.emplace(m, n);
  return *last;
}

// The eigenvectors of x^T x, those of the largest eigenvalues first. Those of
// the tridiagonal matrix come first, because Eigen's reflections are blocked if
// they are applied to a matrix, but not if they make one.
class RightVectors {
 public:
  explicit RightVectors(int64_t n) : square_(n, n), line_(n), eigen_(n) {}
  bool find(const Columns<double>& x, Columns<double>& v) {
    square_.setZero();
    square_.selfadjointView<Eigen::Lower>().rankUpdate(x.transpose());
    line_.compute(square_);
    if (eigen_
            .computeFromTridiagonal(line_.diagonal(), line_.subDiagonal(),
                                    Eigen::ComputeEigenvectors)
            .info() != Eigen::Success)
      return false;
    v = eigen_.eigenvectors().rowwise().reverse();
    v.applyOnTheLeft(line_.matrixQ());
    return true;
  }

 private:
  Columns<double> square_;
  Eigen::Tridiagonalization<Columns<double>> line_;
  Eigen::SelfAdjointEigenSolver<Columns<double>> eigen_;
};

struct SvdF32 {
  SvdF32(int64_t m_, int64_t n_)
      : m(m_), n(n_), x(m, n), v(n, n), turned(m, n), eigen(n), qr(m, n) {}
  int64_t m, n;
  Columns<double> x, v, turned;
  RightVectors eigen;
  Eigen::HouseholderQR<Columns<double>> qr;
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
  auto& [rows, columns, own, right, turned, eigen, made] = kept<SvdF32>(m, n);
  std::vector<double> size(static_cast<size_t>(n)), of_u(size), of_v(size);
  std::vector<int64_t> to(size.size());
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
    turned.noalias() = own * right;
    made.compute(turned);
    own = made.householderQ() * Columns<double>::Identity(m, n);
    for (size_t j = 0; j < size.size(); ++j)
      size[j] = std::abs(made.matrixQR().diagonal()[j]);
    for (size_t j = 0; j < size.size(); ++j) {
      to[j] = place_in_order(size.data(), n, 1, static_cast<int64_t>(j), true);
      of_v[j] = sign_of_column(right, j);
      of_u[j] = made.matrixQR().diagonal()[j] < 0 ? -of_v[j] : of_v[j];
      s[to[j]] = static_cast<float>(size[j]);
    }
    const auto store_in_order = [&](const Columns<double>& from,
                                    const std::vector<double>& sign, float* y) {
      each_element(from.rows(), n, [&](int64_t i, int64_t j) {
        const auto c = static_cast<size_t>(j);
        y[i * n + to[c]] = static_cast<float>(sign[c] * from(i, j));
      });
    };
    store_in_order(own, of_u, u);
    store_in_order(right, of_v, v);
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
      const double sign = sign_of_column(turn, j);
      turn.col(j) *= sign;
      for (int64_t i = 0; i < m; ++i) u[i * n + j] *= sign;
    }
    store(turn, v);
  }
}

}  // namespace dtensor::kernels
