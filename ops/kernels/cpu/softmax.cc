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

// Calls f.template operator()<S>(r) for each row, of storage type S.
template <class F>
void for_rows(const Matrix& x, const char* where, F&& f) {
  visit_float(x.type, where, [&]<class S>() {
    for (int64_t r = 0; r < x.rows; ++r) f.template operator()<S>(r);
  });
}

template <class S>
compute_t<S>& stat(void* p, int64_t row) {
  return static_cast<compute_t<S>*>(p)[row];
}
template <class S>
compute_t<S> stat(const void* p, int64_t row) {
  return static_cast<const compute_t<S>*>(p)[row];
}

}  // namespace

void CpuKernels::run(Stream, const Softmax& a) const {
  const int64_t n = a.x.n;
  for_rows(a.x, "softmax", [&]<class S>(int64_t r) {
    using T = compute_t<S>;
    const S* x = row_at<S>(a.x, r);
    S* y = row_at(static_cast<S*>(a.y), r, n);
    const T max = a.max ? stat<S>(a.max, r) : row_maximum(n, x);
    if (a.log) {
      const T sum = a.sum ? stat<S>(a.sum, r) : exp_sum(n, x, max);
      const Vec<T> m(max), l(std::log(sum));
      each(n, y, [&](auto at) { return at(x) - m - l; });
    } else if (a.sum) {
      const Vec<T> m(max), scale(1 / stat<S>(a.sum, r));
      each(n, y, [&](auto at) { return exp_softmax(at(x) - m) * scale; });
    } else {
      T* e;
      if constexpr (std::is_same_v<S, T>)
        e = y;
      else
        e = scratch<T>(kScratchRows, n);
      const Vec<T> scale(T(1) / exponentials(n, x, max, e));
      each(n, y, [&](auto at) { return at(e) * scale; });
    }
  });
}

void CpuKernels::run(Stream, const SoftmaxBackward& a) const {
  const int64_t n = a.dy.n;
  for_rows(a.dy, "softmax backward", [&]<class S>(int64_t r) {
    const S* y = row_at(static_cast<const S*>(a.y), r, n);
    const S* dy = row_at<S>(a.dy, r);
    S* dx = row_at(static_cast<S*>(a.dx), r, n);
    const Vec<compute_t<S>> sum(a.sum   ? stat<S>(a.sum, r)
                                : a.log ? sum_of(n, dy)
                                        : dot(n, y, dy));
    if (a.log)
      each(n, dx, [&](auto at) { return at(dy) - exp_softmax(at(y)) * sum; });
    else
      each(n, dx, [&](auto at) { return at(y) * (at(dy) - sum); });
  });
}

void CpuKernels::run(Stream, const RowMaxSum& a) const {
  const int64_t n = a.x.n;
  for_rows(a.x, "row_max_sum", [&]<class S>(int64_t r) {
    using T = compute_t<S>;
    const S* x = row_at<S>(a.x, r);
    const T m = row_maximum(n, x);
    stat<S>(a.max, r) = m;
    stat<S>(a.sum, r) = m == kLow<T> ? static_cast<T>(n) : exp_sum(n, x, m);
  });
}

void CpuKernels::run(Stream, const RowSum& a) const {
  for_rows(a.x, "row_sum", [&]<class S>(int64_t r) {
    stat<S>(a.sum, r) = sum_of(a.x.n, row_at<S>(a.x, r));
  });
}

void CpuKernels::run(Stream, const RowDot& a) const {
  for_rows(a.y, "row_dot", [&]<class S>(int64_t r) {
    stat<S>(a.dot, r) = dot(a.y.n, row_at<S>(a.y, r), row_at<S>(a.dy, r));
  });
}

}  // namespace dtensor::kernels
