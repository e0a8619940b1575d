// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/norm.h"

#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/norm_rows.h"
#include "dtensor/ops/kernels/portable/column_sums.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"
#include "dtensor/placement/exact.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::kManyPasses;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::sum_t;
using portable::Two;
using portable::widened;

template <class S>
using Typed = NormRows<S, compute_t<S>>;

template <class S, class C = compute_t<S>>
DT_HD sum_t<C> centered_sumsq(Row& row, int64_t n, const S* x, C mean) {
  return row.sum(
      n,
      [&](auto v) {
        const auto d = v - mean;
        return d * d;
      },
      x);
}

template <class S, class C = compute_t<S>>
DT_HD void apply(Row& row, const Typed<S>& t, const S* x, int64_t r, C m, C s,
                 S* y) {
  S* to = row_at(y, r, t.n);
  if (t.beta)
    row.map(
        t.n, to, [&](auto v, auto g, auto b) { return (v - m) * s * g + b; }, x,
        t.gamma, t.beta);
  else
    row.map(
        t.n, to, [&](auto v, auto g) { return (v - m) * s * g; }, x, t.gamma);
}

// Returns the row to normalize: x, or x + residual, which it stores in t.sum.
template <class S>
DT_HD const S* normed(Row& row, const Typed<S>& t, int64_t r) {
  if (!t.residual.data) return t.x_row(r);
  S* to = row_at(t.sum, r, t.n);
  row.map(
      t.n, to, [](auto a, auto b) { return a + b; }, t.x_row(r),
      row_at<S>(t.residual, r));
  return to;
}

// The mean (0 unless `centered`) and the variance around it.
template <class S, class C = compute_t<S>, class W = sum_t<C>>
DT_HD Two<W> moments(Row& row, int64_t n, const S* x, bool centered) {
  const W inv_n = W(1) / static_cast<W>(n);
  if (!centered) return {W(0), centered_sumsq(row, n, x, C(0)) * inv_n};
  if constexpr (kManyPasses) {
    const W m = row.sum(
                    n, [](auto v) { return v; }, x) *
                inv_n;
    return {m, centered_sumsq(row, n, x, static_cast<C>(m)) * inv_n};
  } else {
    const auto sums = row.sum(
        n,
        [](auto v) {
          return Two<decltype(v)>{v, v * v};
        },
        x);
    const W m = sums.first * inv_n, variance = sums.second * inv_n - m * m;
    // This variance is a difference of large numbers. For rows far from zero it
    // is mostly rounding error, so such rows take another pass.
    if (m * m <= 4 * variance) return {m, variance};
    return {m, centered_sumsq(row, n, x, m) * inv_n};
  }
}

template <class S, class C = compute_t<S>>
void forward(Stream s, const Typed<S>& t, sum_t<C> eps, C* mean, C* rstd,
             S* y) {
  using W = sum_t<C>;
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        row.by_leaves(t.by_leaves);
        const S* x = normed(row, t, r);
        const Two<W> of = moments(row, t.n, x, mean != nullptr);
        const C m = static_cast<C>(of.first),
                scale = static_cast<C>(W(1) / fn::sqrt(of.second + eps));
        if (mean) row.put(mean + r, m);
        row.put(rstd + r, scale);
        apply(row, t, x, r, m, scale, y);
      });
}

template <class S, class C = compute_t<S>>
void apply_rows(Stream s, const Typed<S>& t, S* y) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        apply(row, t, t.x_row(r), r, t.mean_of(r), t.rstd[r], y);
      });
}

template <class S, class C = compute_t<S>>
void sumsq_rows(Stream s, const RowCenteredSumSquares& a) {
  rows(
      s, a.x.rows, a.x.n, DT_BODY(Row & row, int64_t r) {
        row.put(static_cast<C*>(a.sum) + r,
                static_cast<C>(centered_sumsq(
                    row, a.x.n, row_at<S>(a.x, r),
                    a.mean ? static_cast<const C*>(a.mean)[r] : C(0))));
      });
}

// Returns s1 and s2 of row r (NormBackwardSums). Adds dy * xhat to dgamma, and
// dy to dbeta, [n], unless they are null.
template <class S, class C = compute_t<S>, class W = sum_t<C>>
DT_HD Two<C> sums_of(Row& row, const Typed<S>& t, int64_t r,
                     C* dgamma = nullptr, C* dbeta = nullptr) {
  const S *x = t.x_row(r), *dy = t.dy_row(r);
  const C m = t.mean_of(r), s = t.rstd[r];
  row.by_leaves(t.by_leaves);
  Two<W> sums{};
  if (t.mean && !dgamma && !dbeta)
    sums = row.sum(
        t.n,
        [&](auto d, auto v, auto g) {
          const auto dg = d * g;
          return Two<decltype(d)>{dg, dg * (v - m)};
        },
        dy, x, t.gamma);
  else if (t.mean || dbeta)
    sums = row.update_sum(
        t.n,
        [&](auto& gamma, auto& beta, const auto& d, const auto& v,
            const auto& g) {
          const auto dg = d * g, centered = v - m;
          gamma = gamma + d * (centered * s);
          beta = beta + d;
          return Two<std::decay_t<decltype(g)>>{dg, dg * centered};
        },
        dgamma, dbeta, dy, x, t.gamma);
  else
    sums.second = row.update_sum(
        t.n,
        [&](auto& gamma, const auto& d, const auto& v, const auto& g) {
          gamma = gamma + d * (v * s);
          return d * g * v;
        },
        dgamma, dy, x, t.gamma);
  return {t.mean ? static_cast<C>(sums.first) : C(0),
          static_cast<C>(sums.second * static_cast<W>(s))};
}

// dx = rstd * dy * gamma - c1 - (x - mean) * c2 + dsum, where c1 = rstd * s1 /
// n and c2 = rstd^2 * s2 / n. `sums` has s1 and s2.
template <class S, class C = compute_t<S>, class W = sum_t<C>>
DT_HD void backward(Row& row, const Typed<S>& t, int64_t r, Two<C> sums,
                    W inv_n, S* dx) {
  const C m = t.mean_of(r), s = t.rstd[r];
  const C c1 = static_cast<C>(static_cast<W>(s) * sums.first * inv_n),
          c2 = static_cast<C>(static_cast<W>(s) * s * sums.second * inv_n);
  row.update(
      t.n, row_at(dx, r, t.n),
      [&](const auto& d, const auto& v, const auto& g, const auto& h) {
        return s * (d * g) - c1 - (v - m) * c2 + h;
      },
      t.dy_row(r), t.x_row(r), t.gamma, row_at<S>(t.dsum, r));
}

template <class S, class C = compute_t<S>>
void backward_rows(Stream s, const Typed<S>& t, S* dx) {
  const auto inv_n = sum_t<C>(1) / static_cast<sum_t<C>>(t.n);
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, sums_of(row, t, r), inv_n, dx);
      });
}

template <class S, class C = compute_t<S>>
void apply_backward(Stream s, const Typed<S>& t, const C* s1, const C* s2,
                    sum_t<C> inv_n, S* dx) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, Two<C>{t.mean ? s1[r] : C(0), s2[r]}, inv_n, dx);
      });
}

template <class S, class C = compute_t<S>>
void sums_rows(Stream s, const Typed<S>& t, C* s1, C* s2) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        const Two<C> sums = sums_of(row, t, r);
        if (s1) row.put(s1 + r, sums.first);
        row.put(s2 + r, sums.second);
      });
}

// Computes dgamma and dbeta, if not null, over each `height` rows: [parts, n].
template <class S, class C = compute_t<S>>
void add_rows(Stream s, const Typed<S>& t, int64_t parts, int64_t height,
              C* dgamma, C* dbeta) {
  each(
      s, parts * t.n, DT_BODY(int64_t i) {
        const int64_t j = i % t.n, begin = i / t.n * height,
                      end = begin + height < t.rows ? begin + height : t.rows;
        C gamma = 0, beta = 0;
        for (int64_t r = begin; r < end; ++r) {
          const C d = widened(t.dy_row(r)[j]);
          beta += d;
          if (dgamma)
            gamma += d * ((widened(t.x_row(r)[j]) - t.mean_of(r)) * t.rstd[r]);
        }
        if (dgamma) dgamma[i] = gamma;
        if (dbeta) dbeta[i] = beta;
      });
}

// Calls sums(parts, height, dgamma, dbeta), which sums over parts of the rows.
// If there are several parts, adds them in a second step.
template <class S, class F, class C = compute_t<S>>
void in_parts(Stream s, const Typed<S>& t, const ColumnParts& columns,
              C* dgamma, C* dbeta, F&& sums) {
  const int64_t parts = columns.parts;
  if (parts == 1) return sums(parts, columns.height, dgamma, dbeta);
  const int64_t size = parts * t.n;
  Scratch scratch(s, 2 * size * static_cast<int64_t>(sizeof(C)));
  C* gamma = dgamma ? scratch.template as<C>() : nullptr;
  C* beta = dbeta ? scratch.template as<C>() + size : nullptr;
  sums(parts, columns.height, gamma, beta);
  if (dgamma) add_parts(s, parts, t.n, gamma, dgamma);
  if (dbeta) add_parts(s, parts, t.n, beta, dbeta);
}

// Computes dx, and dgamma and dbeta over each `height` rows, [parts, n]; skips
// those that are null. A second pass over a row, for dx, finds dy and x in a
// cache. The sums are accumulated in fast memory, at most kRowBlock rows at a
// time, because two short sums round less than a long one.
template <class S, class C = compute_t<S>>
void backward_parts(Stream s, const Typed<S>& t, int64_t parts, int64_t height,
                    S* dx, C* dgamma, C* dbeta) {
  constexpr int64_t kRowBlock = 64;
  const auto inv_n = sum_t<C>(1) / static_cast<sum_t<C>>(t.n);
  rows(
      s, parts, t.n,
      DT_BODY(Row & row, int64_t p) {
        const auto plus = [](auto a, auto b) { return a + b; };
        const int64_t begin = p * height,
                      end = begin + height < t.rows ? begin + height : t.rows;
        C* const gamma = dgamma ? row.fast<C>() : nullptr;
        C* const beta = dbeta ? row.fast<C>() + t.n : nullptr;
        if (gamma) row.fill(t.n, dgamma + p * t.n, C(0));
        if (beta) row.fill(t.n, dbeta + p * t.n, C(0));
        for (int64_t b = begin; b < end; b += kRowBlock) {
          const int64_t last = b + kRowBlock < end ? b + kRowBlock : end;
          row.fill(2 * t.n, row.fast<C>(), C(0));
          for (int64_t r = b; r < last; ++r) {
            const Two<C> sums = sums_of(row, t, r, gamma, beta);
            if (dx) backward(row, t, r, sums, inv_n, dx);
          }
          if (gamma)
            row.map(t.n, dgamma + p * t.n, plus, dgamma + p * t.n, gamma);
          if (beta) row.map(t.n, dbeta + p * t.n, plus, dbeta + p * t.n, beta);
        }
      },
      2 * t.n * static_cast<int64_t>(sizeof(C)));
}

template <class S, class C = compute_t<S>>
void whole_backward(Stream s, const Typed<S>& t, S* dx, C* dgamma, C* dbeta) {
  if (t.n == 0) return;
  if (dgamma || dbeta) {
    // kFast: the most bytes of fast memory per block with which a
    // multiprocessor of a GPU can run several blocks at once. kLeastRows:
    // about the fewest rows that a part sums. kSummed: the most sums that all
    // parts store, which limits the scratch memory.
    constexpr int64_t kFast = 36 << 10, kSummed = int64_t{1} << 21,
                      kLeastRows = 4;
    const auto bytes = 2 * t.n * static_cast<int64_t>(sizeof(C));
    if (kManyPasses || bytes <= kFast)
      return in_parts(s, t, ColumnParts(t.rows, t.n, kLeastRows, kSummed),
                      dgamma, dbeta,
                      [&](int64_t parts, int64_t height, C* gamma, C* beta) {
                        backward_parts(s, t, parts, height, dx, gamma, beta);
                      });
    in_parts(s, t, ColumnParts(t.rows, t.n), dgamma, dbeta,
             [&](int64_t parts, int64_t height, C* gamma, C* beta) {
               add_rows(s, t, parts, height, gamma, beta);
             });
  }
  if (dx) backward_rows(s, t, dx);
}

// dgamma and dbeta as exact sums, on the CPU.
template <class S>
void add_exact(const Typed<S>& t, Exact* dgamma, Exact* dbeta) {
  if (!kManyPasses || std::is_same_v<S, double>)
    no_kernel("reproducible norm backward", dtype_of<S>);
  std::fill_n(dgamma, t.n, Exact());
  if (dbeta) std::fill_n(dbeta, t.n, Exact());
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t j = 0; j < t.n; ++j) {
      const auto d = widened(t.dy_row(r)[j]);
      const auto centered = widened(t.x_row(r)[j]) - t.mean_of(r);
      dgamma[j].add(static_cast<double>(d * (centered * t.rstd[r])));
      if (dbeta) dbeta[j].add(static_cast<double>(d));
    }
}

}  // namespace

DT_KERNEL(NormForward)
void run(Stream s, const NormForward& a) {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    using C = compute_t<S>;
    forward(s, Typed<S>(a.of), static_cast<sum_t<C>>(a.eps),
            static_cast<C*>(a.mean), static_cast<C*>(a.rstd),
            static_cast<S*>(a.y));
  });
}

DT_KERNEL(NormBackward)
void run(Stream s, const NormBackward& a) {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    const Typed<S> t(a.of);
    if (a.exact)
      add_exact(t, static_cast<Exact*>(a.dgamma), static_cast<Exact*>(a.dbeta));
    whole_backward(s, t, static_cast<S*>(a.dx),
                   a.exact ? nullptr : static_cast<C*>(a.dgamma),
                   a.exact ? nullptr : static_cast<C*>(a.dbeta));
  });
}

DT_KERNEL(RowCenteredSumSquares)
void run(Stream s, const RowCenteredSumSquares& a) {
  visit_float(a.x.type, "row_centered_sumsq",
              [&]<class S>() { sumsq_rows<S>(s, a); });
}

DT_KERNEL(NormApply)
void run(Stream s, const NormApply& a) {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    apply_rows(s, Typed<S>(a.of), static_cast<S*>(a.y));
  });
}

DT_KERNEL(NormBackwardSums)
void run(Stream s, const NormBackwardSums& a) {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    sums_rows(s, Typed<S>(a.of), static_cast<C*>(a.s1), static_cast<C*>(a.s2));
  });
}

DT_KERNEL(NormBackwardApply)
void run(Stream s, const NormBackwardApply& a) {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    apply_backward(s, Typed<S>(a.of), static_cast<const C*>(a.s1),
                   static_cast<const C*>(a.s2), static_cast<sum_t<C>>(a.inv_n),
                   static_cast<S*>(a.dx));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
