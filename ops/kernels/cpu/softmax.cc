#include <cmath>
#include <limits>
#include <type_traits>

#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"
#include "dtensor/ops/kernels/cpu/rows.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

template <class S>
compute_t<S> exp_sum(int64_t n, const S* x, compute_t<S> max) {
  using T = compute_t<S>;
  const Vec<T> m(max);
  return static_cast<T>(
      total<T>(n, [&](auto at) { return exp_softmax(at(x, kLow<T>) - m); }));
}

template <class S>
compute_t<S> dot(int64_t n, const S* a, const S* b) {
  using T = compute_t<S>;
  return static_cast<T>(total<T>(n, [&](auto at) { return at(a) * at(b); }));
}

template <class S>
compute_t<S> sum_of(int64_t n, const S* x) {
  using T = compute_t<S>;
  return static_cast<T>(total<T>(n, [&](auto at) { return at(x); }));
}

// Calls f(x row, statistics index) for each row of storage type S.
template <class F>
void for_rows(DType t, const char* where, int64_t rows, F&& f) {
  visit_float(t, where, [&]<class S>() {
    for (int64_t r = 0; r < rows; ++r) f.template operator()<S>(r);
  });
}

// Null, the address of an empty tensor, stays null.
template <class S>
const S* at_row(const void* p, int64_t row, int64_t stride) {
  return p ? static_cast<const S*>(p) + row * stride : nullptr;
}
template <class S>
S* out_row(void* p, int64_t row, int64_t stride) {
  return p ? static_cast<S*>(p) + row * stride : nullptr;
}
template <class S>
compute_t<S>& stat(void* p, int64_t row) {
  return static_cast<compute_t<S>*>(p)[row];
}
template <class S>
compute_t<S> stat(const void* p, int64_t row) {
  return static_cast<const compute_t<S>*>(p)[row];
}

template <class S>
void subtract_dot(int64_t n, const S* y, const S* dy, compute_t<S> dot, S* dx) {
  const Vec<compute_t<S>> d(dot);
  each(n, dx, [&](auto at) { return at(y) * (at(dy) - d); });
}
template <class S>
void subtract_sum(int64_t n, const S* y, const S* dy, compute_t<S> sum, S* dx) {
  const Vec<compute_t<S>> s(sum);
  each(n, dx, [&](auto at) { return at(dy) - exp_softmax(at(y)) * s; });
}
template <class S>
void subtract_lse(int64_t n, const S* x, compute_t<S> max, compute_t<S> sum,
                  S* y) {
  using V = Vec<compute_t<S>>;
  const V m(max), l(std::log(sum));
  each(n, y, [&](auto at) { return at(x) - m - l; });
}

}  // namespace

void CpuKernels::softmax_rows(Stream, DType t, int64_t rows, int64_t n,
                              const void* x, int64_t x_stride, void* y) const {
  for_rows(t, "softmax", rows, [&]<class S>(int64_t r) {
    using T = compute_t<S>;
    const S* xr = at_row<S>(x, r, x_stride);
    S* yr = out_row<S>(y, r, n);
    T* e;
    if constexpr (std::is_same_v<S, T>)
      e = yr;
    else
      e = scratch<T>(kScratchRows, n);
    const Vec<T> scale(T(1) / exponentials(n, xr, row_maximum(n, xr), e));
    each(n, yr, [&](auto at) { return at(e) * scale; });
  });
}

void CpuKernels::log_softmax_rows(Stream, DType t, int64_t rows, int64_t n,
                                  const void* x, int64_t x_stride,
                                  void* y) const {
  for_rows(t, "log_softmax", rows, [&]<class S>(int64_t r) {
    const S* xr = at_row<S>(x, r, x_stride);
    const auto max = row_maximum(n, xr);
    subtract_lse(n, xr, max, exp_sum(n, xr, max), out_row<S>(y, r, n));
  });
}

void CpuKernels::softmax_backward_rows(Stream, DType t, int64_t rows, int64_t n,
                                       const void* y, const void* dy,
                                       int64_t dy_stride, void* dx) const {
  for_rows(t, "softmax backward", rows, [&]<class S>(int64_t r) {
    const S* yr = at_row<S>(y, r, n);
    const S* dr = at_row<S>(dy, r, dy_stride);
    subtract_dot(n, yr, dr, dot(n, yr, dr), out_row<S>(dx, r, n));
  });
}

void CpuKernels::log_softmax_backward_rows(Stream, DType t, int64_t rows,
                                           int64_t n, const void* y,
                                           const void* dy, int64_t dy_stride,
                                           void* dx) const {
  for_rows(t, "log_softmax backward", rows, [&]<class S>(int64_t r) {
    const S* dr = at_row<S>(dy, r, dy_stride);
    subtract_sum(n, at_row<S>(y, r, n), dr, sum_of(n, dr),
                 out_row<S>(dx, r, n));
  });
}

void CpuKernels::row_max_sum(Stream, DType t, int64_t rows, int64_t n,
                             const void* x, int64_t x_stride, void* max,
                             void* sum) const {
  for_rows(t, "row_max_sum", rows, [&]<class S>(int64_t r) {
    using T = compute_t<S>;
    const S* xr = at_row<S>(x, r, x_stride);
    const T m = row_maximum(n, xr);
    stat<S>(max, r) = m;
    stat<S>(sum, r) = m == kLow<T> ? static_cast<T>(n) : exp_sum(n, xr, m);
  });
}

void CpuKernels::row_sum(Stream, DType t, int64_t rows, int64_t n,
                         const void* x, int64_t x_stride, void* sum) const {
  for_rows(t, "row_sum", rows, [&]<class S>(int64_t r) {
    stat<S>(sum, r) = sum_of(n, at_row<S>(x, r, x_stride));
  });
}

void CpuKernels::softmax_apply(Stream, DType t, int64_t rows, int64_t n,
                               const void* x, int64_t x_stride, const void* max,
                               const void* sum, void* y) const {
  for_rows(t, "softmax_apply", rows, [&]<class S>(int64_t r) {
    using V = Vec<compute_t<S>>;
    const S* xr = at_row<S>(x, r, x_stride);
    const V m(stat<S>(max, r)), scale(1 / stat<S>(sum, r));
    each(n, out_row<S>(y, r, n),
         [&](auto at) { return exp_softmax(at(xr) - m) * scale; });
  });
}

void CpuKernels::log_softmax_apply(Stream, DType t, int64_t rows, int64_t n,
                                   const void* x, int64_t x_stride,
                                   const void* max, const void* sum,
                                   void* y) const {
  for_rows(t, "log_softmax_apply", rows, [&]<class S>(int64_t r) {
    subtract_lse(n, at_row<S>(x, r, x_stride), stat<S>(max, r), stat<S>(sum, r),
                 out_row<S>(y, r, n));
  });
}

void CpuKernels::row_dot(Stream, DType t, int64_t rows, int64_t n,
                         const void* y, int64_t y_stride, const void* dy,
                         int64_t dy_stride, void* result) const {
  for_rows(t, "row_dot", rows, [&]<class S>(int64_t r) {
    stat<S>(result, r) =
        dot(n, at_row<S>(y, r, y_stride), at_row<S>(dy, r, dy_stride));
  });
}

void CpuKernels::softmax_backward_apply(Stream, DType t, int64_t rows,
                                        int64_t n, const void* y,
                                        const void* dy, int64_t dy_stride,
                                        const void* dot, void* dx) const {
  for_rows(t, "softmax backward", rows, [&]<class S>(int64_t r) {
    subtract_dot(n, at_row<S>(y, r, n), at_row<S>(dy, r, dy_stride),
                 stat<S>(dot, r), out_row<S>(dx, r, n));
  });
}

void CpuKernels::log_softmax_backward_apply(Stream, DType t, int64_t rows,
                                            int64_t n, const void* y,
                                            const void* dy, int64_t dy_stride,
                                            const void* sum_dy,
                                            void* dx) const {
  for_rows(t, "log_softmax backward", rows, [&]<class S>(int64_t r) {
    subtract_sum(n, at_row<S>(y, r, n), at_row<S>(dy, r, dy_stride),
                 stat<S>(sum_dy, r), out_row<S>(dx, r, n));
  });
}

}  // namespace dtensor::kernels
