// SPDX-License-Identifier: Apache-2.0
// Triangular factors and the systems of equations that they solve, and the
// exponential of a matrix. The loops change one row or column at a time, in
// place, so that all inner loops run over contiguous elements.
#include "dtensor/ops/kernels/linalg.h"

#include "dtensor/ops/kernels/portable/matrices.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::Row;
using portable::rows;

// Solves t x = x in place, for x [n, k].
template <class T>
DT_HD void solve_in_place(auto& row, int64_t n, int64_t k, const T* t,
                          bool upper, bool unit, T* x) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t j = upper ? n - 1 - step : step, left = n - 1 - step;
    if (!unit) {
      const T pivot = t[j * n + j];
      row.each(k, [&](int64_t c) { x[j * k + c] /= pivot; });
    }
    const int64_t first = upper ? 0 : j + 1;
    each_pair(row, left, k, [&](int64_t i, int64_t c) {
      x[(first + i) * k + c] -= t[(first + i) * n + j] * x[j * k + c];
    });
  }
}

// c = I + scale a b, or scale a b.
template <class T>
DT_HD void multiply(auto& row, int64_t n, T scale, const T* a, const T* b,
                    bool plus_one, T* c) {
  if constexpr (portable::kManyPasses) {
    for (int64_t i = 0; i < n; ++i) {
      row.each(n, [&](int64_t j) {
        c[i * n + j] = static_cast<T>(plus_one && i == j);
      });
      for (int64_t k = 0; k < n; ++k) {
        const T v = scale * a[i * n + k];
        row.each(n, [&](int64_t j) { c[i * n + j] += v * b[k * n + j]; });
      }
    }
  } else {
    each_pair(row, n, n, [&](int64_t i, int64_t j) {
      T sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = scale * sum + static_cast<T>(plus_one && i == j);
    });
  }
}

template <class T>
void run_all(Stream s, const Cholesky& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto* const l = static_cast<T*>(a.l);
  int64_t* const failed = a.failed;
  const int64_t n = a.n;
  const Triangle triangle = a.triangle;
  rows(
      s, a.count, n * n, DT_BODY(Row & row, int64_t r) {
        // The upper factor u, with u^T u = x, is made in the upper triangle,
        // where the inner loops run along rows.
        T* const u = l + r * n * n;
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          u[i * n + j] = symmetric(triangle, x + r * n * n, n, i, j);
        });
        int64_t bad = 0;
        for (int64_t j = 0; j < n; ++j) {
          const T pivot = u[j * n + j];
          if (!(pivot > 0) && bad == 0) bad = j + 1;
          const T root = fn::sqrt(pivot);
          row.sync();
          row.each(n - j, [&](int64_t i) {
            u[j * n + j + i] = i == 0 ? root : u[j * n + j + i] / root;
          });
          each_pair(row, n - 1 - j, n - 1 - j, [&](int64_t i, int64_t c) {
            const int64_t at = j + 1 + i;
            u[at * n + j + 1 + c] -= u[j * n + at] * u[j * n + j + 1 + c];
          });
        }
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          if (i <= j) return;
          u[i * n + j] = u[j * n + i];
          u[j * n + i] = 0;
        });
        row.put(failed + r, bad);
      });
}

template <class T>
void run_all(Stream s, const Lu& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto* const lu = static_cast<T*>(a.lu);
  auto* const parity = static_cast<T*>(a.parity);
  int64_t *const order = a.order, *const failed = a.failed;
  const int64_t n = a.n;
  rows(
      s, a.count, n * n, DT_BODY(Row & row, int64_t r) {
        T* const u = lu + r * n * n;
        int64_t* const place = order + r * n;
        if (u != x + r * n * n) row.copy(n * n, u, x + r * n * n);
        row.each(n, [&](int64_t i) { place[i] = i; });
        int64_t bad = 0;
        T sign = 1;
        for (int64_t j = 0; j < n; ++j) {
          const At<T> best =
              row.reduce(n - j, At<T>{-1, j}, Largest(), [&](int64_t i) {
                return At<T>{fn::abs(u[(j + i) * n + j]), j + i};
              });
          const int64_t p = best.index;
          if (p != j) {
            sign = -sign;
            row.each(n, [&](int64_t c) {
              const T other = u[p * n + c];
              u[p * n + c] = u[j * n + c];
              u[j * n + c] = other;
            });
            row.each(1, [&](int64_t) {
              const int64_t other = place[p];
              place[p] = place[j];
              place[j] = other;
            });
          }
          const T pivot = u[j * n + j];
          if (pivot == 0) {
            if (bad == 0) bad = j + 1;
            continue;
          }
          const int64_t left = n - 1 - j;
          row.each(left, [&](int64_t i) { u[(j + 1 + i) * n + j] /= pivot; });
          each_pair(row, left, left, [&](int64_t i, int64_t c) {
            T* const to = u + (j + 1 + i) * n;
            to[j + 1 + c] -= to[j] * u[j * n + j + 1 + c];
          });
        }
        row.put(parity + r, sign);
        row.put(failed + r, bad);
      });
}

template <class T>
void run_all(Stream s, const SolveTriangular& a) {
  const auto *t = static_cast<const T*>(a.t), *b = static_cast<const T*>(a.b);
  auto* const x = static_cast<T*>(a.x);
  const int64_t n = a.n, k = a.k;
  const int64_t* const order = a.order;
  const bool upper = a.upper, unit = a.unit;
  rows(
      s, a.count, n * k, DT_BODY(Row & row, int64_t r) {
        T* const to = x + r * n * k;
        const T* const from = b + r * n * k;
        if (from != to)
          each_pair(row, n, k, [&](int64_t i, int64_t c) {
            const int64_t at = order ? order[r * n + i] : i;
            to[i * k + c] = from[at * k + c];
          });
        solve_in_place(row, n, k, t + r * n * n, upper, unit, to);
      });
}

template <class T>
void run_all(Stream s, const MatrixExp& a) {
  const auto* x = static_cast<const T*>(a.x);
  auto *const y = static_cast<T*>(a.y), *const work = static_cast<T*>(a.work);
  const int64_t n = a.n;
  rows(
      s, a.count, n * n, DT_BODY(Row & row, int64_t r) {
        const T* const in = x + r * n * n;
        T* const scaled = work + 2 * r * n * n;
        T *from = scaled + n * n, *to = y + r * n * n;
        // The largest sum of |x| in a row.
        double size = row.reduce(n, 0.0, portable::Max(), [&](int64_t i) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += fn::abs(in[i * n + j]);
          return sum;
        });
        if (!is_finite(size)) {
          row.fill(n * n, to, static_cast<T>(size - size));
          return;
        }
        // A sum of at most 1/2 leaves 1/2^17 / 17! after 16 terms.
        constexpr int kTerms = 16;
        int squarings = 0;
        double factor = 1;
        for (; size > 0.5; size /= 2, factor /= 2) ++squarings;
        each_pair(row, n, n, [&](int64_t i, int64_t j) {
          scaled[i * n + j] = static_cast<T>(in[i * n + j] * factor);
          from[i * n + j] = static_cast<T>(i == j);
        });
        for (int k = kTerms; k >= 1; --k) {
          multiply(row, n, T(1) / static_cast<T>(k), scaled, from, true, to);
          T* const made = to;
          to = from;
          from = made;
        }
        for (int i = 0; i < squarings; ++i) {
          multiply(row, n, T(1), from, from, false, to);
          T* const made = to;
          to = from;
          from = made;
        }
        if (from != y + r * n * n) row.copy(n * n, y + r * n * n, from);
      });
}

}  // namespace

DT_KERNEL(Cholesky)
void run(Stream s, const Cholesky& a) {
  visit_wide(a.type, "cholesky", [&]<class T>() { run_all<T>(s, a); });
}

DT_KERNEL(Lu)
void run(Stream s, const Lu& a) {
  visit_wide(a.type, "lu", [&]<class T>() { run_all<T>(s, a); });
}

DT_KERNEL(SolveTriangular)
void run(Stream s, const SolveTriangular& a) {
  visit_wide(a.type, "solve_triangular", [&]<class T>() { run_all<T>(s, a); });
}

DT_KERNEL(MatrixExp)
void run(Stream s, const MatrixExp& a) {
  visit_wide(a.type, "matrix_exp", [&]<class T>() { run_all<T>(s, a); });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
