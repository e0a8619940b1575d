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
void topk_typed(const TopK& a) {
  using T = compute_t<S>;
  const auto* x = static_cast<const S*>(a.x.data);
  auto* values = static_cast<S*>(a.values);
  int64_t* value_ids = a.value_ids;
  std::vector<int64_t> order(static_cast<size_t>(a.x.n));
  for (int64_t r = 0; r < a.x.rows; ++r, x += a.x.stride) {
    const auto id = [&](int64_t i) {
      return a.ids ? a.ids[r * a.x.n + i] : a.first + i;
    };
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto before = [&](int64_t i, int64_t j) {
      const T u(x[i]), v(x[j]);
      if (above(u, v)) return a.largest;
      if (above(v, u)) return !a.largest;
      return id(i) < id(j);
    };
    // A heap is faster if it stays small.
    if (a.k > a.x.n / 8)
      std::sort(order.begin(), order.end(), before);
    else
      std::partial_sort(order.begin(), order.begin() + a.k, order.end(),
                        before);
    for (int64_t j = 0; j < a.k; ++j) {
      const int64_t i = order[static_cast<size_t>(j)];
      *values++ = x[i];
      *value_ids++ = id(i);
    }
  }
}

template <class S>
void put_typed(const PutRows& a, int64_t n) {
  using T = compute_t<S>;
  const S* from = static_cast<const S*>(a.dy.data);
  const int64_t* index = a.index;
  S* to = static_cast<S*>(a.dx);
  for (int64_t r = 0; r < a.dy.rows; ++r, from += a.dy.stride, to += n)
    for (int64_t j = 0; j < a.dy.n; ++j, ++index)
      if (*index >= a.lo && *index < a.hi)
        to[*index - a.lo] = S(sum_of(T(to[*index - a.lo]), T(from[j])));
}

}  // namespace

void CpuKernels::run(Stream, const TopK& a) const {
  visit(a.x.type, [&]<class S>() {
    if constexpr (std::is_same_v<S, bool>)
      fail("topk", "bools have no order");
    else
      topk_typed<S>(a);
  });
}

void CpuKernels::run(Stream, const TakeRows& a) const {
  visit(a.x.type, [&]<class S>() {
    const S* from = static_cast<const S*>(a.x.data);
    const int64_t* index = a.index;
    S* to = static_cast<S*>(a.out);
    for (int64_t r = 0; r < a.x.rows; ++r, from += a.x.stride)
      for (int64_t j = 0; j < a.k; ++j, ++index)
        *to++ = *index >= a.lo && *index < a.hi ? from[*index - a.lo] : S();
  });
}

void CpuKernels::run(Stream, const PutRows& a) const {
  const int64_t n = std::max<int64_t>(a.hi - a.lo, 0);
  const int64_t rows = a.dy.rows;
  if (rows * n == 0) return;
  std::memset(a.dx, 0, static_cast<size_t>(rows * n * size_of(a.dy.type)));
  visit_numbers(a.dy.type, "scatter_add",
                [&]<class S>() { put_typed<S>(a, n); });
}

void CpuKernels::run(Stream, const LastPlaces& a) const {
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t* index = row_at(a.index, r, a.stride);
    int64_t* to = row_at(a.places, r, a.hi - a.lo);
    for (int64_t j = 0; j < a.k; ++j)
      if (index[j] >= a.lo && index[j] < a.hi)
        to[index[j] - a.lo] = a.first + j;
  }
}

}  // namespace dtensor::kernels
