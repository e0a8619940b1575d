#include <algorithm>
#include <cmath>
#include <type_traits>

#include "dtensor/device/portable/rows.h"
#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/norm_rows.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// The gradients of parameters sum this many rows in one buffer before it is
// added to the total, because two short sums round less than one long one.
constexpr int64_t kRowBlock = 64;

template <class S>
double centered_sumsq(int64_t n, const S* x, compute_t<S> mean) {
  using T = compute_t<S>;
  const Vec<T> m(mean);
  return total<T>(n, [&](auto at) {
    const Vec<T> d = at(x, mean) - m;
    return d * d;
  });
}

template <class S>
struct Typed : NormRows<S, compute_t<S>> {
  using T = compute_t<S>;
  using V = Vec<T>;
  using Base = NormRows<S, T>;
  using Base::Base, Base::x_row, Base::dy_row, Base::mean_of;
  using Base::mean, Base::rstd;
  using Base::n, Base::gamma, Base::beta, Base::residual, Base::dsum;

  // The row to normalize: that of x, or of the sum, which this computes.
  const S* normed(int64_t r) const {
    const S* xr = x_row(r);
    if (!residual.data) return xr;
    const S* other = row_at<S>(residual, r);
    S* to = row_at(this->sum, r, n);
    each(n, to, [&](auto at) { return at(xr) + at(other); });
    return to;
  }

  void apply(const S* xr, T mean_r, T rstd_r, S* yr) const {
    const V m(mean_r), s(rstd_r);
    if (beta)
      each(n, yr,
           [&](auto at) { return (at(xr) - m) * s * at(gamma) + at(beta); });
    else
      each(n, yr, [&](auto at) { return (at(xr) - m) * s * at(gamma); });
  }

  // sum(dy gamma) and sum(dy gamma xhat) of row r.
  void sums(int64_t r, T* s1, T* s2) const {
    const S *xr = x_row(r), *dr = dy_row(r);
    const V m(mean_of(r));
    double a = 0;
    if (mean) a = total<T>(n, [&](auto at) { return at(dr) * at(gamma); });
    const double b =
        total<T>(n, [&](auto at) { return at(dr) * at(gamma) * (at(xr) - m); });
    *s1 = static_cast<T>(a);
    *s2 = static_cast<T>(b * static_cast<double>(rstd[r]));
  }

  void backward(int64_t r, T s1, T s2, double inv_n, S* dx) const {
    const S *xr = x_row(r), *dr = dy_row(r);
    const T scale = rstd[r];
    // dx = rstd dy gamma - c1 - (x - mean) c2
    const V m(mean_of(r)), s(scale);
    const V c1(mean ? static_cast<double>(scale) * s1 * inv_n : 0.0);
    const V c2(static_cast<double>(scale) * scale * s2 * inv_n);
    const auto of_norm = [&](auto at) {
      return s * (at(dr) * at(gamma)) - c1 - (at(xr) - m) * c2;
    };
    const S* hr = row_at<S>(dsum, r);
    if (hr)
      each(n, row_at(dx, r, n), [&](auto at) { return of_norm(at) + at(hr); });
    else
      each(n, row_at(dx, r, n), of_norm);
  }

  // Adds row r's share of dgamma and dbeta.
  void add_params(int64_t r, T* dgamma, T* dbeta) const {
    const S *xr = x_row(r), *dr = dy_row(r);
    const V m(mean_of(r)), s(rstd[r]);
    if (dgamma)
      each(n, dgamma,
           [&](auto at) { return at(dgamma) + at(dr) * ((at(xr) - m) * s); });
    if (dbeta) each(n, dbeta, [&](auto at) { return at(dbeta) + at(dr); });
  }
};

// Calls f(row) for every row, and sums the parameters' gradients in the same
// pass.
template <class S, class F>
void with_params(const Typed<S>& t, void* dgamma, void* dbeta, F&& f) {
  using T = compute_t<S>;
  auto* gamma = static_cast<T*>(dgamma);
  auto* beta = static_cast<T*>(dbeta);
  if (gamma) std::fill_n(gamma, t.n, T(0));
  if (beta) std::fill_n(beta, t.n, T(0));
  T* block = scratch<T>(kScratchRows, 2 * t.n);
  T* block_gamma = gamma ? block : nullptr;
  T* block_beta = beta ? block + t.n : nullptr;
  for (int64_t b = 0; b < t.rows; b += kRowBlock) {
    std::fill_n(block, 2 * t.n, T(0));
    const int64_t end = std::min(t.rows, b + kRowBlock);
    for (int64_t r = b; r < end; ++r) {
      t.add_params(r, block_gamma, block_beta);  // before dx overwrites dy
      f(r);
    }
    if (gamma)
      each(t.n, gamma, [&](auto at) { return at(gamma) + at(block_gamma); });
    if (beta)
      each(t.n, beta, [&](auto at) { return at(beta) + at(block_beta); });
  }
}

}  // namespace

void CpuKernels::run(Stream, const NormForward& a) const {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    using T = compute_t<S>;
    const Typed<S> t(a.of);
    const double inv_n = 1.0 / static_cast<double>(t.n);
    for (int64_t r = 0; r < t.rows; ++r) {
      const S* x = t.normed(r);
      T m = 0;
      if (a.mean) {
        m = static_cast<T>(total<T>(t.n, [&](auto at) { return at(x); }) *
                           inv_n);
        static_cast<T*>(a.mean)[r] = m;
      }
      const T s = static_cast<T>(
          1.0 / std::sqrt(centered_sumsq(t.n, x, m) * inv_n + a.eps));
      static_cast<T*>(a.rstd)[r] = s;
      t.apply(x, m, s, row_at(static_cast<S*>(a.y), r, t.n));
    }
  });
}

void CpuKernels::run(Stream, const NormBackward& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using T = compute_t<S>;
    const Typed<S> t(a.of);
    const double inv_n = 1.0 / static_cast<double>(t.n);
    auto row = [&](int64_t r) {
      if (!a.dx) return;
      T s1, s2;
      t.sums(r, &s1, &s2);
      t.backward(r, s1, s2, inv_n, static_cast<S*>(a.dx));
    };
    if (a.dgamma || a.dbeta) return with_params(t, a.dgamma, a.dbeta, row);
    for (int64_t r = 0; r < t.rows; ++r) row(r);
  });
}

void CpuKernels::run(Stream, const RowCenteredSumSquares& a) const {
  visit_float(a.x.type, "row_centered_sumsq", [&]<class S>() {
    using T = compute_t<S>;
    for (int64_t r = 0; r < a.x.rows; ++r)
      static_cast<T*>(a.sum)[r] = static_cast<T>(
          centered_sumsq(a.x.n, row_at<S>(a.x, r),
                         a.mean ? static_cast<const T*>(a.mean)[r] : T(0)));
  });
}

void CpuKernels::run(Stream, const NormApply& a) const {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    const Typed<S> t(a.of);
    for (int64_t r = 0; r < t.rows; ++r)
      t.apply(t.x_row(r), t.mean_of(r), t.rstd[r],
              row_at(static_cast<S*>(a.y), r, t.n));
  });
}

void CpuKernels::run(Stream, const NormBackwardSums& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using T = compute_t<S>;
    const Typed<S> t(a.of);
    for (int64_t r = 0; r < t.rows; ++r) {
      T first;
      t.sums(r, &first, static_cast<T*>(a.s2) + r);
      if (a.s1) static_cast<T*>(a.s1)[r] = first;
    }
  });
}

void CpuKernels::run(Stream, const NormBackwardApply& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using T = compute_t<S>;
    const Typed<S> t(a.of);
    for (int64_t r = 0; r < t.rows; ++r)
      t.backward(r, t.mean ? static_cast<const T*>(a.s1)[r] : T(0),
                 static_cast<const T*>(a.s2)[r], a.inv_n,
                 static_cast<S*>(a.dx));
  });
}

}  // namespace dtensor::kernels
