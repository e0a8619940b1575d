// SPDX-License-Identifier: Apache-2.0
// Orthogonal factors: QR and eigenvectors. Vectors are kept as the rows of a
// work array, so that all inner loops run over contiguous elements.
#include <limits>

#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/kernels/portable/matrices.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;

// Applies the reflection I - tau [1, v] [1, v]^T to `x`, whose first element is
// the one that belongs to the 1. v has n elements.
template <class T>
DT_HD void reflect(auto& row, int64_t n, T tau, const T* v, T* x) {
  const T first = x[0];
  const T by =
      tau * static_cast<T>(static_cast<double>(first) + dot(row, n, v, x + 1));
  row.sync();
  row.each(n + 1, [&](int64_t i) { x[i] -= i == 0 ? by : by * v[i - 1]; });
}

template <class T>
void run_all(Stream s, const Qr& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto *const q = static_cast<T*>(a.q), *const r = static_cast<T*>(a.r),
              *const work = static_cast<T*>(a.work);
  const int64_t m = a.m, n = a.n;
  rows(
      s, a.count, m * n, DT_BODY(Row & row, int64_t at) {
        T* const columns = work + at * (2 * m + 1) * n;  // of x, [n, m]
        T* const of_q = columns + m * n;                 // of q, [n, m]
        T* const tau = of_q + m * n;                     // [n]
        const T scale = scale_for(largest_of(row, m * n, x + at * m * n));
        each_pair(row, n, m, [&](int64_t j, int64_t i) {
          columns[j * m + i] = x[(at * m + i) * n + j] / scale;
          of_q[j * m + i] = static_cast<T>(i == j);
        });
        for (int64_t j = 0; j < n; ++j) {
          T* const v = columns + j * m + j;
          const int64_t left = m - 1 - j;
          const double rest = dot(row, left, v + 1, v + 1);
          const T head = v[0];
          T turned = 0;
          if (rest != 0) {  // NaN, too
            const double size =
                fn::hypot(static_cast<double>(head), fn::sqrt(rest));
            const T beta = static_cast<T>(head < 0 ? size : -size);
            turned = (beta - head) / beta;
            row.sync();
            row.each(left + 1, [&](int64_t i) {
              v[i] = i == 0 ? beta : v[i] / (head - beta);
            });
          }
          row.put(tau + j, turned);
          for (int64_t c = j + 1; c < n; ++c)
            reflect(row, left, turned, v + 1, columns + c * m + j);
        }
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          r[(at * n + i) * n + j] = i <= j ? columns[j * m + i] * scale : T(0);
        });
        for (int64_t j = n - 1; j >= 0; --j)
          for (int64_t c = j; c < n; ++c)
            reflect(row, m - 1 - j, tau[j], columns + j * m + j + 1,
                    of_q + c * m + j);
        each_pair(row, m, n, [&](int64_t i, int64_t j) {
          q[(at * m + i) * n + j] = of_q[j * m + i];
        });
      });
}

template <class T>
void run_all(Stream s, const Eigh& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto *const values = static_cast<T*>(a.values),
              *const vectors = static_cast<T*>(a.vectors),
              *const work = static_cast<T*>(a.work);
  const int64_t n = a.n;
  const Triangle triangle = a.triangle;
  rows(
      s, a.count, n * n, DT_BODY(Row & row, int64_t at) {
        T* const d = work + at * 2 * n * n;  // becomes diagonal
        T* const v = d + n * n;              // row i is vector i
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          d[i * n + j] = symmetric(triangle, x + at * n * n, n, i, j);
          v[i * n + j] = static_cast<T>(i == j);
        });
        const T largest = largest_of(row, n * n, d);
        if (!is_finite(largest)) {
          const T nan = largest - largest;
          row.fill(n, values + at * n, nan);
          row.fill(n * n, vectors + at * n * n, nan);
          return;
        }
        // So that sums of elements are finite.
        const T scale = scale_for(largest);
        row.each(n * n, [&](int64_t i) { d[i] /= scale; });
        const T least = largest / scale * std::numeric_limits<T>::epsilon() / 8;
        bool again = true;
        for (int sweep = 0; again && sweep < kMostSweeps; ++sweep) {
          again = false;
          for (int64_t p = 0; p < n; ++p)
            for (int64_t q = p + 1; q < n; ++q) {
              const T both = d[p * n + q];
              if (fn::abs(both) <= least) continue;
              again = true;
              const T first = d[p * n + p], second = d[q * n + q];
              double t = 0;
              const auto by = diagonalizing<T>(first, second, both, &t);
              const T change = static_cast<T>(t * both);
              row.sync();
              rotate(row, n, by, d + p * n, d + q * n);
              rotate(row, n, by, v + p * n, v + q * n);
              // The same rotation of the columns.
              row.each(n, [&](int64_t k) {
                const bool is_p = k == p, is_q = k == q;
                d[k * n + p] = is_p   ? first - change
                               : is_q ? T(0)
                                      : d[p * n + k];
                d[k * n + q] = is_q   ? second + change
                               : is_p ? T(0)
                                      : d[q * n + k];
              });
            }
        }
        row.each(n, [&](int64_t i) {
          const int64_t to = place_in_order(d, n, n + 1, i, false);
          values[at * n + to] = d[i * n + i] * scale;
          const T sign = sign_of(n, v + i * n);
          for (int64_t k = 0; k < n; ++k)
            vectors[(at * n + k) * n + to] = sign * v[i * n + k];
        });
      });
}

}  // namespace

DT_KERNEL(Qr)
void run(Stream s, const Qr& a) {
  visit_wide(a.type, "qr", [&]<class T>() { run_all<T>(s, a); });
}

DT_KERNEL(Eigh)
void run(Stream s, const Eigh& a) {
  visit_wide(a.type, "eigh", [&]<class T>() { run_all<T>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
