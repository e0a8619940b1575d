// Layer norm and RMS norm.
#include "dtensor/device/portable/pack.h"
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/norm_rows.h"
#include "dtensor/ops/kernels/portable/column_sums.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::Sum;
using portable::widened;

// Two sums that are taken in one pass.
template <class C>
struct Sums {
  C a, b;
  DT_HD Sums operator+(const Sums& o) const { return {a + o.a, b + o.b}; }
};

template <class S>
using Typed = NormRows<S, compute_t<S>>;

template <class S, class C = compute_t<S>>
DT_HD C centered_sumsq(Row& row, int64_t n, const S* x, C mean) {
  return row.reduce(
      n, C(0), Sum(),
      [&](int64_t, S v) {
        const C d = widened(v) - mean;
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
        t.n, to, [&](C v, C g, C b) { return (v - m) * s * g + b; }, x, t.gamma,
        t.beta);
  else
    row.map(
        t.n, to, [&](C v, C g) { return (v - m) * s * g; }, x, t.gamma);
}

// The row to normalize: that of x, or of the sum, which this computes.
template <class S>
DT_HD const S* normed(Row& row, const Typed<S>& t, int64_t r) {
  if (!t.residual.data) return t.x_row(r);
  S* to = row_at(t.sum, r, t.n);
  row.map(
      t.n, to, [](auto a, auto b) { return a + b; }, t.x_row(r),
      row_at<S>(t.residual, r));
  return to;
}

template <class S, class C = compute_t<S>>
void forward(Stream s, const Typed<S>& t, C eps, C* mean, C* rstd, S* y) {
  const C inv_n = C(1) / static_cast<C>(t.n);
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        const S* x = normed(row, t, r);
        const Sums<C> sums = row.reduce(
            t.n, Sums<C>{}, Sum(),
            [](int64_t, S v) {
              const C w = widened(v);
              return Sums<C>{w, w * w};
            },
            x);
        C m = 0, variance = sums.b * inv_n;
        if (mean) {
          m = sums.a * inv_n;
          variance -= m * m;
          // A difference of large numbers. For rows far from zero it is mostly
          // rounding error, so they take another pass.
          if (!(m * m <= 4 * variance))
            variance = centered_sumsq(row, t.n, x, m) * inv_n;
          row.put(mean + r, m);
        }
        const C scale = C(1) / fn::sqrt(variance + eps);
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
        row.put(
            static_cast<C*>(a.sum) + r,
            centered_sumsq(row, a.x.n, row_at<S>(a.x, r),
                           a.mean ? static_cast<const C*>(a.mean)[r] : C(0)));
      });
}

// s1 and s2 of row r.
template <class S, class C = compute_t<S>>
DT_HD Sums<C> sums_of(Row& row, const Typed<S>& t, int64_t r) {
  const C m = t.mean_of(r);
  const Sums<C> sums = row.reduce(
      t.n, Sums<C>{}, Sum(),
      [&](int64_t, S d, S v, S g) {
        const C dg = widened(d) * widened(g);
        return Sums<C>{dg, dg * (widened(v) - m)};
      },
      t.dy_row(r), t.x_row(r), t.gamma);
  return {t.mean ? sums.a : C(0), sums.b * t.rstd[r]};
}

// dx = rstd dy gamma - c1 - (x - mean) c2 + dsum. Calls also(j, dy, xhat) for
// every element before dx is written.
template <class S, class Also, class C = compute_t<S>>
DT_HD void backward(Row& row, const Typed<S>& t, int64_t r, Sums<C> sums,
                    C inv_n, S* dx, Also also) {
  const C m = t.mean_of(r), s = t.rstd[r];
  const C c1 = s * sums.a * inv_n, c2 = s * s * sums.b * inv_n;
  const auto of_norm = [&](int64_t j, C d, C v, C g) {
    const C centered = v - m;
    also(j, d, centered * s);
    return s * (d * g) - c1 - centered * c2;
  };
  const S *x = t.x_row(r), *dy = t.dy_row(r);
  S* to = row_at(dx, r, t.n);
  if (t.dsum.data)
    row.map_at(
        t.n, to,
        [&](int64_t j, C d, C v, C g, C h) { return of_norm(j, d, v, g) + h; },
        dy, x, t.gamma, row_at<S>(t.dsum, r));
  else
    row.map_at(t.n, to, of_norm, dy, x, t.gamma);
}

template <class S, class C = compute_t<S>>
void backward_rows(Stream s, const Typed<S>& t, S* dx) {
  const C inv_n = C(1) / static_cast<C>(t.n);
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, sums_of(row, t, r), inv_n, dx,
                 [](int64_t, C, C) {});
      });
}

template <class S, class C = compute_t<S>>
void apply_backward(Stream s, const Typed<S>& t, const C* s1, const C* s2,
                    C inv_n, S* dx) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, Sums<C>{t.mean ? s1[r] : C(0), s2[r]}, inv_n, dx,
                 [](int64_t, C, C) {});
      });
}

template <class S, class C = compute_t<S>>
void sums_rows(Stream s, const Typed<S>& t, C* s1, C* s2) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        const Sums<C> sums = sums_of(row, t, r);
        if (s1) row.put(s1 + r, sums.a);
        row.put(s2 + r, sums.b);
      });
}

// Sums columns over each `height` rows, [parts, n].
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

// Calls sums(parts, height, dgamma, dbeta) for parts of rows, and adds the
// parts in a second step if there are several.
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

template <class S, class C = compute_t<S>>
void param_sums(Stream s, const Typed<S>& t, C* dgamma, C* dbeta) {
  if (t.n == 0 || (!dgamma && !dbeta)) return;
  in_parts(s, t, ColumnParts(t.rows, t.n), dgamma, dbeta,
           [&](int64_t parts, int64_t height, C* gamma, C* beta) {
             add_rows(s, t, parts, height, gamma, beta);
           });
}

// The position of a column's sum in fast memory, chosen so that a GPU's lanes
// do not share banks. If lanes take packs in step, elements with the same
// position in their packs are stored side by side. If lanes take single
// elements, those of a pack are in different banks.
template <class S, class C = compute_t<S>>
struct Spread {
  static constexpr uint32_t kWidth = portable::kPack<S>,
                            kBanks = 128 / sizeof(C);
  int64_t pitch;
  explicit Spread(int64_t n)
      : pitch((n + kWidth * kBanks - 1) / (kWidth * kBanks) * kBanks +
              kBanks / kWidth) {}
  int64_t size() const { return kWidth * pitch; }
  DT_HD uint32_t operator()(int64_t j) const {
    const auto i = static_cast<uint32_t>(j);  // fast memory is small
    return i % kWidth * static_cast<uint32_t>(pitch) + i / kWidth;
  }
};

// dx, and the parameters' sums over each `height` rows, [parts, n]. dy and x
// are read once; the sums are accumulated in fast memory.
template <class S, class C = compute_t<S>>
void backward_parts(Stream s, const Typed<S>& t, const Spread<S>& spread,
                    int64_t parts, int64_t height, S* dx, C* dgamma, C* dbeta) {
  const C inv_n = C(1) / static_cast<C>(t.n);
  const int64_t size = spread.size(), summed = dbeta ? 2 * size : size;
  rows(
      s, parts, t.n,
      DT_BODY(Row & row, int64_t p) {
        const int64_t begin = p * height,
                      end = begin + height < t.rows ? begin + height : t.rows;
        C *const gamma = row.fast<C>(), *const beta = gamma + size;
        row.each(summed, [&](int64_t i) { gamma[i] = 0; });
        for (int64_t r = begin; r < end; ++r)
          backward(row, t, r, sums_of(row, t, r), inv_n, dx,
                   [&](int64_t j, C d, C xhat) {
                     const uint32_t at = spread(j);
                     gamma[at] += d * xhat;
                     if (dbeta) beta[at] += d;
                   });
        row.each(t.n, [&](int64_t j) {
          const uint32_t at = spread(j);
          dgamma[p * t.n + j] = gamma[at];
          if (dbeta) dbeta[p * t.n + j] = beta[at];
        });
      },
      summed * static_cast<int64_t>(sizeof(C)));
}

template <class S, class C = compute_t<S>>
void whole_backward(Stream s, const Typed<S>& t, S* dx, C* dgamma, C* dbeta) {
  // kFast: the bytes of fast memory per block of a GPU that let several blocks
  // run at once. kSummed: the most elements in the parts, few compared with dy.
  constexpr int64_t kFast = 36 << 10, kSummed = int64_t{1} << 21,
                    kLeastRows = 4;
  const Spread<S> spread(t.n);
  const auto bytes =
      (dbeta ? 2 : 1) * spread.size() * static_cast<int64_t>(sizeof(C));
  if (!dx || !dgamma || t.n == 0 || bytes > kFast) {
    param_sums(s, t, dgamma, dbeta);  // before dx overwrites dy
    if (dx) backward_rows(s, t, dx);
    return;
  }
  in_parts(s, t, ColumnParts(t.rows, t.n, kLeastRows, kSummed), dgamma, dbeta,
           [&](int64_t parts, int64_t height, C* gamma, C* beta) {
             backward_parts(s, t, spread, parts, height, dx, gamma, beta);
           });
}

}  // namespace

void PortableKernels::run(Stream s, const NormForward& a) const {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    using C = compute_t<S>;
    forward(s, Typed<S>(a.of), static_cast<C>(a.eps), static_cast<C*>(a.mean),
            static_cast<C*>(a.rstd), static_cast<S*>(a.y));
  });
}

void PortableKernels::run(Stream s, const NormBackward& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    whole_backward(s, Typed<S>(a.of), static_cast<S*>(a.dx),
                   static_cast<C*>(a.dgamma), static_cast<C*>(a.dbeta));
  });
}

void PortableKernels::run(Stream s, const RowCenteredSumSquares& a) const {
  visit_float(a.x.type, "row_centered_sumsq",
              [&]<class S>() { sumsq_rows<S>(s, a); });
}

void PortableKernels::run(Stream s, const NormApply& a) const {
  visit_float(a.of.x.type, "norm", [&]<class S>() {
    apply_rows(s, Typed<S>(a.of), static_cast<S*>(a.y));
  });
}

void PortableKernels::run(Stream s, const NormBackwardSums& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    sums_rows(s, Typed<S>(a.of), static_cast<C*>(a.s1), static_cast<C*>(a.s2));
  });
}

void PortableKernels::run(Stream s, const NormBackwardApply& a) const {
  visit_float(a.of.x.type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    apply_backward(s, Typed<S>(a.of), static_cast<const C*>(a.s1),
                   static_cast<const C*>(a.s2), static_cast<C>(a.inv_n),
                   static_cast<S*>(a.dx));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
