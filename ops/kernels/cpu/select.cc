#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "dtensor/ops/kernels/cpu/cpu_kernels.h"
#include "dtensor/ops/kernels/cpu/loops.h"

namespace dtensor::kernels {
namespace {

using namespace cpu;

// Whether a > b, where a NaN counts as largest.
template <class T>
bool above(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class S>
void topk_typed(int64_t rows, int64_t n, const S* x, int64_t stride,
                const int64_t* ids, int64_t first, int64_t k, bool largest,
                S* values, int64_t* value_ids) {
  using T = compute_t<S>;
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r, x += stride) {
    const auto id = [&](int64_t i) { return ids ? ids[r * n + i] : first + i; };
    std::iota(order.begin(), order.end(), int64_t{0});
    std::partial_sort(order.begin(), order.begin() + k, order.end(),
                      [&](int64_t i, int64_t j) {
                        const T a(x[i]), b(x[j]);
                        if (above(a, b)) return largest;
                        if (above(b, a)) return !largest;
                        return id(i) < id(j);
                      });
    for (int64_t j = 0; j < k; ++j) {
      const int64_t i = order[static_cast<size_t>(j)];
      *values++ = x[i];
      *value_ids++ = id(i);
    }
  }
}

}  // namespace

void CpuKernels::topk_rows(Stream, DType t, int64_t rows, int64_t n,
                           const void* x, int64_t x_stride, const int64_t* ids,
                           int64_t first, int64_t k, bool largest, void* values,
                           int64_t* value_ids) const {
  visit(t, [&]<class S>() {
    if constexpr (std::is_same_v<S, bool>)
      fail("topk", "bools have no order");
    else
      topk_typed(rows, n, static_cast<const S*>(x), x_stride, ids, first, k,
                 largest, static_cast<S*>(values), value_ids);
  });
}

void CpuKernels::take_rows(Stream, DType t, int64_t rows, int64_t k,
                           const void* x, int64_t x_stride,
                           const int64_t* index, int64_t lo, int64_t hi,
                           void* out) const {
  visit(t, [&]<class S>() {
    const S* from = static_cast<const S*>(x);
    S* to = static_cast<S*>(out);
    for (int64_t r = 0; r < rows; ++r, from += x_stride)
      for (int64_t j = 0; j < k; ++j, ++index)
        *to++ = *index >= lo && *index < hi ? from[*index - lo] : S();
  });
}

void CpuKernels::put_rows(Stream, DType t, int64_t rows, int64_t k,
                          const void* dy, int64_t dy_stride,
                          const int64_t* index, int64_t lo, int64_t hi,
                          void* dx) const {
  const int64_t n = std::max<int64_t>(hi - lo, 0);
  if (rows * n == 0) return;
  std::memset(dx, 0, static_cast<size_t>(rows * n * size_of(t)));
  visit_float(t, "gather backward", [&]<class S>() {
    using T = compute_t<S>;
    const S* from = static_cast<const S*>(dy);
    S* to = static_cast<S*>(dx);
    for (int64_t r = 0; r < rows; ++r, from += dy_stride, to += n)
      for (int64_t j = 0; j < k; ++j, ++index)
        if (*index >= lo && *index < hi)
          to[*index - lo] = S(T(to[*index - lo]) + T(from[j]));
  });
}

}  // namespace dtensor::kernels
