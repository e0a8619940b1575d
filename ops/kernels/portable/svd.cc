// SPDX-License-Identifier: Apache-2.0
// Singular vectors. They are kept as the rows of a work array, so that all
// inner loops run over contiguous elements.
#include <limits>

#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/kernels/portable/matrices.h"

namespace dtensor::kernels {
namespace cpu {

void svd_f32(const Svd&);
// Finds most of v first; `rotate` is this file's kernel for f64.
void svd_f64(Stream, const Svd&, void (*rotate)(Stream, const Svd&));

}  // namespace cpu

inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;

// Makes row i of u [n, m] a unit vector that is orthogonal to those rows j for
// which has(j). They are orthonormal, and fewer than m.
template <class T, class Has>
DT_HD void complete(auto& row, int64_t n, int64_t m, T* u, int64_t i, Has has) {
  // The axis of which the other vectors contain the least.
  const At<double> least =
      row.reduce(m, At<double>{-1e30, m}, Largest(), [&](int64_t k) {
        double sum = 0;
        for (int64_t j = 0; j < n; ++j)
          if (has(j)) sum += static_cast<double>(u[j * m + k]) * u[j * m + k];
        return At<double>{-sum, k};
      });
  row.each(m,
           [&](int64_t k) { u[i * m + k] = static_cast<T>(k == least.index); });
  for (int pass = 0; pass < 2; ++pass)  // the second one removes rounding
    for (int64_t j = 0; j < n; ++j) {
      if (!has(j)) continue;
      const T by = static_cast<T>(dot(row, m, u + j * m, u + i * m));
      row.sync();
      row.each(m, [&](int64_t k) { u[i * m + k] -= by * u[j * m + k]; });
    }
  const T length = static_cast<T>(fn::sqrt(dot(row, m, u + i * m, u + i * m)));
  row.sync();
  row.each(m, [&](int64_t k) { u[i * m + k] /= length; });
}

template <class T>
void run_all(Stream stream, const Svd& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto *const s = static_cast<T*>(a.s), *const u = static_cast<T*>(a.u),
              *const v = static_cast<T*>(a.v),
              *const work = static_cast<T*>(a.work);
  const int64_t m = a.m, n = a.n;
  rows(
      stream, a.count, m * n, DT_BODY(Row & row, int64_t at) {
        T* const w = work + at * (m + n + 1) * n;  // row i is s_i u_i, [n, m]
        T* const right = w + m * n;                // row i is v_i, [n, n]
        T* const size = right + n * n;             // [n]
        const T largest = largest_of(row, m * n, x + at * m * n);
        if (!is_finite(largest)) {
          const T nan = largest - largest;
          row.fill(n, s + at * n, nan);
          row.fill(m * n, u + at * m * n, nan);
          row.fill(n * n, v + at * n * n, nan);
          return;
        }
        const T scale = scale_for(largest);
        each_pair(row, n, m, [&](int64_t j, int64_t i) {
          w[j * m + i] = x[(at * m + i) * n + j] / scale;
        });
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          right[i * n + j] = static_cast<T>(i == j);
        });
        // A column below `noise` has nothing but rounding errors. Its vector
        // may be any that is orthogonal to the others.
        const double eps = std::numeric_limits<T>::epsilon(),
                     least = eps * fn::sqrt(static_cast<double>(m)),
                     noise = eps * fn::sqrt(dot(row, m * n, w, w));
        bool again = true;
        for (int sweep = 0; again && sweep < kMostSweeps; ++sweep) {
          again = false;
          for (int64_t p = 0; p < n; ++p)
            for (int64_t q = p + 1; q < n; ++q) {
              T *const first = w + p * m, *const second = w + q * m;
              const double aa = dot(row, m, first, first),
                           bb = dot(row, m, second, second),
                           ab = dot(row, m, first, second);
              if (fn::abs(ab) <= least * fn::sqrt(aa * bb) ||
                  aa <= noise * noise || bb <= noise * noise)
                continue;
              again = true;
              double t = 0;
              const auto by = diagonalizing<T>(aa, bb, ab, &t);
              rotate(row, m, by, first, second);
              rotate(row, n, by, right + p * n, right + q * n);
            }
        }
        for (int64_t i = 0; i < n; ++i) {
          const T length =
              static_cast<T>(fn::sqrt(dot(row, m, w + i * m, w + i * m)));
          row.put(size + i, length);
          if (length > noise)
            row.each(m, [&](int64_t k) { w[i * m + k] /= length; });
        }
        for (int64_t i = 0; i < n; ++i)
          if (!(size[i] > noise))
            complete(row, n, m, w, i,
                     [&](int64_t j) { return size[j] > noise || j < i; });
        row.each(n, [&](int64_t i) {
          const int64_t to = place_in_order(size, n, 1, i, true);
          s[at * n + to] = size[i] * scale;
          const T sign = sign_of(n, right + i * n);
          for (int64_t k = 0; k < m; ++k)
            u[(at * m + k) * n + to] = sign * w[i * m + k];
          for (int64_t k = 0; k < n; ++k)
            v[(at * n + k) * n + to] = sign * right[i * n + k];
        });
      });
}

}  // namespace

DT_KERNEL(Svd)
void run(Stream s, const Svd& a) {
#if !defined(__CUDACC__) && !defined(DT_CUDA_EMULATED)
  if (a.type == DType::kF32) return cpu::svd_f32(a);
  constexpr int64_t kFew = 8;  // for fewer columns, rotations are as fast
  if (a.type == DType::kF64 && a.n >= kFew)
    return cpu::svd_f64(s, a, run_all<double>);
#endif
  visit_wide(a.type, "svd", [&]<class T>() { run_all<T>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
