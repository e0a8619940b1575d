// The contiguous loops behind kernels::unary, one table per compute type.
// Private to ops/kernels.
#pragma once
#include <cstdint>

#include "dtensor/ops/functions.h"
#include "dtensor/ops/kernels/cpu/vec.h"

namespace dtensor::kernels::cpu {

// out = f^(k)(x) dy (k = 0: f(x), dy unread). out may be x or dy.
template <class T>
using UnaryLoop = void (*)(const double* p, int64_t n, const T* x, const T* dy,
                           T* out);

UnaryLoop<float> unary_f32(int index, int order);
UnaryLoop<double> unary_f64(int index, int order);

template <class F, int k, class T>
void unary_loop(const double* p, int64_t n, const T* x, const T* dy, T* out) {
  using V = Vec<T>;
  auto f = [p](V a, V b) {
    const V y = fn::derivative<F, k>(a, p);
    if constexpr (k == 0) {
      (void)b;
      return y;
    } else {
      return y * b;
    }
  };
  int64_t i = 0;
  for (; i + V::n <= n; i += V::n)
    store(out + i, f(load(x + i), k == 0 ? V(0) : load(dy + i)));
  // The tail in a register of its own too, so that a value's bits do not
  // depend on where it stands. Padded with 1, where few functions are slow.
  if (const int64_t m = n - i)
    store_n(out + i,
            f(load_n(x + i, m, T(1)), k == 0 ? V(0) : load_n(dy + i, m)), m);
}

template <class T, class... F>
UnaryLoop<T> find_loop(fn::FunctionList<F...>, int index, int order) {
  static constexpr UnaryLoop<T> loops[][3] = {
      {&unary_loop<F, 0, T>, &unary_loop<F, 1, T>, &unary_loop<F, 2, T>}...};
  return loops[index][order];
}

}  // namespace dtensor::kernels::cpu
