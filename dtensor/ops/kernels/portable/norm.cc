// Layer norm and RMS norm.
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/portable/column_sums.h"
#include "dtensor/ops/kernels/portable/floats.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "dtensor/ops/kernels/portable/row.h"

namespace dtensor::kernels {
inline namespace DT_PORTABLE {
namespace {

using portable::compute_t;
using portable::each;
using portable::rounded;
using portable::Row;
using portable::rows;
using portable::Scratch;
using portable::Sum;
using portable::widened;

// Two sums in one pass.
template <class C>
struct Sums {
  C a, b;
  DT_HD Sums operator+(const Sums& o) const { return {a + o.a, b + o.b}; }
};

// The operands of one kernel in their types.
template <class S>
struct Typed {
  using C = compute_t<S>;
  int64_t rows, n;
  const S *x, *gamma, *beta;
  int64_t x_stride;
  const C *mean, *rstd;
  const S* dy;
  int64_t dy_stride;

  Typed(const Norm& a, const void* mean_, const void* rstd_,
        const void* dy_ = nullptr, int64_t dy_stride_ = 0)
      : rows(a.rows),
        n(a.n),
        x(static_cast<const S*>(a.x)),
        gamma(static_cast<const S*>(a.gamma)),
        beta(static_cast<const S*>(a.beta)),
        x_stride(a.x_stride),
        mean(static_cast<const C*>(mean_)),
        rstd(static_cast<const C*>(rstd_)),
        dy(static_cast<const S*>(dy_)),
        dy_stride(dy_stride_) {}

  DT_HD C mean_of(int64_t r) const { return mean ? mean[r] : C(0); }
};

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
DT_HD void apply(Row& row, const Typed<S>& t, int64_t r, C m, C s, S* y) {
  const S* x = row_at(t.x, r, t.x_stride);
  S* to = row_at(y, r, t.n);
  const auto xhat = [&](S v) { return (widened(v) - m) * s; };
  if (t.gamma && t.beta)
    row.map(
        t.n, to,
        [&](int64_t, S v, S g, S b) {
          return rounded<S>(xhat(v) * widened(g) + widened(b));
        },
        x, t.gamma, t.beta);
  else if (t.gamma)
    row.map(
        t.n, to,
        [&](int64_t, S v, S g) { return rounded<S>(xhat(v) * widened(g)); }, x,
        t.gamma);
  else if (t.beta)
    row.map(
        t.n, to,
        [&](int64_t, S v, S b) { return rounded<S>(xhat(v) + widened(b)); }, x,
        t.beta);
  else
    row.map(
        t.n, to, [&](int64_t, S v) { return rounded<S>(xhat(v)); }, x);
}

template <class S, class C = compute_t<S>>
void forward(Stream s, const Typed<S>& t, C eps, C* mean, C* rstd, S* y) {
  const C inv_n = C(1) / static_cast<C>(t.n);
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        const S* x = row_at(t.x, r, t.x_stride);
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
          // A difference of large numbers: of rows far from zero it is mostly
          // rounding, and another pass is worth its time.
          if (!(m * m <= 4 * variance))
            variance = centered_sumsq(row, t.n, x, m) * inv_n;
          put(row, mean + r, m);
        }
        const C scale = C(1) / fn::sqrt(variance + eps);
        put(row, rstd + r, scale);
        apply(row, t, r, m, scale, y);
      });
}

template <class S, class C = compute_t<S>>
void apply_rows(Stream s, const Typed<S>& t, S* y) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        apply(row, t, r, t.mean_of(r), t.rstd[r], y);
      });
}

template <class S, class C = compute_t<S>>
void sumsq_rows(Stream s, int64_t count, int64_t n, const S* x, int64_t stride,
                const C* mean, C* sumsq) {
  rows(
      s, count, n, DT_BODY(Row & row, int64_t r) {
        put(row, sumsq + r,
            centered_sumsq(row, n, row_at(x, r, stride),
                           mean ? mean[r] : C(0)));
      });
}

// s1 and s2 of row r.
template <class S, class C = compute_t<S>>
DT_HD Sums<C> sums_of(Row& row, const Typed<S>& t, int64_t r) {
  const S* x = row_at(t.x, r, t.x_stride);
  const S* dy = row_at(t.dy, r, t.dy_stride);
  const C m = t.mean_of(r);
  const auto both = [&](C d, S v) { return Sums<C>{d, d * (widened(v) - m)}; };
  const Sums<C> sums =
      t.gamma
          ? row.reduce(
                t.n, Sums<C>{}, Sum(),
                [&](int64_t, S d, S v, S g) {
                  return both(widened(d) * widened(g), v);
                },
                dy, x, t.gamma)
          : row.reduce(
                t.n, Sums<C>{}, Sum(),
                [&](int64_t, S d, S v) { return both(widened(d), v); }, dy, x);
  return {t.mean ? sums.a : C(0), sums.b * t.rstd[r]};
}

// dx = rstd dy gamma - c1 - (x - mean) c2.
template <class S, class C = compute_t<S>>
DT_HD void backward(Row& row, const Typed<S>& t, int64_t r, Sums<C> sums,
                    C inv_n, S* dx) {
  const S* x = row_at(t.x, r, t.x_stride);
  const S* dy = row_at(t.dy, r, t.dy_stride);
  S* to = row_at(dx, r, t.n);
  const C m = t.mean_of(r), s = t.rstd[r];
  const C c1 = s * sums.a * inv_n, c2 = s * s * sums.b * inv_n;
  const auto at = [&](C d, S v) {
    return rounded<S>(s * d - c1 - (widened(v) - m) * c2);
  };
  if (t.gamma)
    row.map(
        t.n, to,
        [&](int64_t, S d, S v, S g) { return at(widened(d) * widened(g), v); },
        dy, x, t.gamma);
  else
    row.map(
        t.n, to, [&](int64_t, S d, S v) { return at(widened(d), v); }, dy, x);
}

template <class S, class C = compute_t<S>>
void backward_rows(Stream s, const Typed<S>& t, S* dx) {
  const C inv_n = C(1) / static_cast<C>(t.n);
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, sums_of(row, t, r), inv_n, dx);
      });
}

template <class S, class C = compute_t<S>>
void apply_backward(Stream s, const Typed<S>& t, const C* s1, const C* s2,
                    C inv_n, S* dx) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        backward(row, t, r, Sums<C>{t.mean ? s1[r] : C(0), s2[r]}, inv_n, dx);
      });
}

template <class S, class C = compute_t<S>>
void sums_rows(Stream s, const Typed<S>& t, C* s1, C* s2) {
  rows(
      s, t.rows, t.n, DT_BODY(Row & row, int64_t r) {
        const Sums<C> sums = sums_of(row, t, r);
        if (s1) put(row, s1 + r, sums.a);
        put(row, s2 + r, sums.b);
      });
}

// The columns' sums over each `height` rows, [parts, n].
template <class S, class C = compute_t<S>>
void add_rows(Stream s, const Typed<S>& t, int64_t parts, int64_t height,
              C* dgamma, C* dbeta) {
  each(
      s, parts * t.n, DT_BODY(int64_t i) {
        const int64_t j = i % t.n, begin = i / t.n * height,
                      end = begin + height < t.rows ? begin + height : t.rows;
        C gamma = 0, beta = 0;
        for (int64_t r = begin; r < end; ++r) {
          const C d = widened(t.dy[r * t.dy_stride + j]);
          beta += d;
          if (dgamma)
            gamma += d * ((widened(t.x[r * t.x_stride + j]) - t.mean_of(r)) *
                          t.rstd[r]);
        }
        if (dgamma) dgamma[i] = gamma;
        if (dbeta) dbeta[i] = beta;
      });
}

template <class S, class C = compute_t<S>>
void param_sums(Stream s, const Typed<S>& t, C* dgamma, C* dbeta) {
  if (t.n == 0 || (!dgamma && !dbeta)) return;
  const ColumnParts columns(t.rows, t.n);
  const int64_t parts = columns.parts, height = columns.height;
  if (parts == 1) return add_rows(s, t, 1, height, dgamma, dbeta);
  const int64_t size = parts * t.n;
  Scratch scratch(s, 2 * size * static_cast<int64_t>(sizeof(C)));
  C* gamma = dgamma ? scratch.template as<C>() : nullptr;
  C* beta = dbeta ? scratch.template as<C>() + size : nullptr;
  add_rows(s, t, parts, height, gamma, beta);
  if (dgamma) add_parts(s, parts, t.n, gamma, dgamma);
  if (dbeta) add_parts(s, parts, t.n, beta, dbeta);
}

}  // namespace

void PortableKernels::norm_forward(Stream s, DType type, const Norm& a,
                                   double eps, void* mean, void* rstd,
                                   void* y) const {
  visit_float(type, "norm", [&]<class S>() {
    using C = compute_t<S>;
    forward(s, Typed<S>(a, mean, rstd), static_cast<C>(eps),
            static_cast<C*>(mean), static_cast<C*>(rstd), static_cast<S*>(y));
  });
}

void PortableKernels::norm_backward(Stream s, DType type, const Norm& a,
                                    const void* mean, const void* rstd,
                                    const void* dy, int64_t dy_stride, void* dx,
                                    void* dgamma, void* dbeta) const {
  // Before dx overwrites dy.
  norm_backward_params(s, type, a, mean, rstd, dy, dy_stride, dgamma, dbeta);
  if (!dx) return;
  visit_float(type, "norm backward", [&]<class S>() {
    backward_rows(s, Typed<S>(a, mean, rstd, dy, dy_stride),
                  static_cast<S*>(dx));
  });
}

void PortableKernels::row_centered_sumsq(Stream s, DType type, int64_t count,
                                         int64_t n, const void* x,
                                         int64_t x_stride, const void* mean,
                                         void* sumsq) const {
  visit_float(type, "row_centered_sumsq", [&]<class S>() {
    using C = compute_t<S>;
    sumsq_rows(s, count, n, static_cast<const S*>(x), x_stride,
               static_cast<const C*>(mean), static_cast<C*>(sumsq));
  });
}

void PortableKernels::norm_apply(Stream s, DType type, const Norm& a,
                                 const void* mean, const void* rstd,
                                 void* y) const {
  visit_float(type, "norm", [&]<class S>() {
    apply_rows(s, Typed<S>(a, mean, rstd), static_cast<S*>(y));
  });
}

void PortableKernels::norm_backward_rows(Stream s, DType type, const Norm& a,
                                         const void* mean, const void* rstd,
                                         const void* dy, int64_t dy_stride,
                                         void* s1, void* s2) const {
  visit_float(type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    sums_rows(s, Typed<S>(a, mean, rstd, dy, dy_stride), static_cast<C*>(s1),
              static_cast<C*>(s2));
  });
}

void PortableKernels::norm_backward_apply(Stream s, DType type, const Norm& a,
                                          const void* mean, const void* rstd,
                                          const void* dy, int64_t dy_stride,
                                          const void* s1, const void* s2,
                                          double inv_n, void* dx) const {
  visit_float(type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    apply_backward(s, Typed<S>(a, mean, rstd, dy, dy_stride),
                   static_cast<const C*>(s1), static_cast<const C*>(s2),
                   static_cast<C>(inv_n), static_cast<S*>(dx));
  });
}

void PortableKernels::norm_backward_params(Stream s, DType type, const Norm& a,
                                           const void* mean, const void* rstd,
                                           const void* dy, int64_t dy_stride,
                                           void* dgamma, void* dbeta) const {
  visit_float(type, "norm backward", [&]<class S>() {
    using C = compute_t<S>;
    param_sums(s, Typed<S>(a, mean, rstd, dy, dy_stride),
               static_cast<C*>(dgamma), static_cast<C*>(dbeta));
  });
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
