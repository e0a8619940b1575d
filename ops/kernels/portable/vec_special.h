// SPDX-License-Identifier: Apache-2.0
// The special functions of a register of floats, element by element: they have
// loops of different lengths.
#pragma once
#include "dtensor/ops/functions/special_math.h"
#include "dtensor/ops/kernels/portable/vec.h"

namespace dtensor::simd {

#define DT_EACH(name)                                                  \
  template <class T>                                                   \
  inline Vec<T> name(Vec<T> a) {                                       \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i]); \
    return a;                                                          \
  }
DT_EACH(lgamma)
DT_EACH(digamma)
DT_EACH(erfcx)
DT_EACH(log_ndtr)
DT_EACH(ndtri)
DT_EACH(erfinv)
DT_EACH(frexp_mantissa)
DT_EACH(frexp_exponent)
#undef DT_EACH
#define DT_EACH(name, Order)                                              \
  template <class T>                                                      \
  inline Vec<T> name(Vec<T> a, Order n) {                                 \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i], n); \
    return a;                                                             \
  }
DT_EACH(polygamma, double)
DT_EACH(bessel_i, int)
DT_EACH(bessel_ie, int)
#undef DT_EACH
#define DT_EACH(name)                                                          \
  template <class T>                                                           \
  inline Vec<T> name(Vec<T> a, Vec<T> b) {                                     \
    for (int64_t i = 0; i < Vec<T>::n; ++i) a.v[i] = fn::name(a.v[i], b.v[i]); \
    return a;                                                                  \
  }
DT_EACH(igamma)
DT_EACH(igammac)
DT_EACH(gamma_density)
DT_EACH(zeta)
#undef DT_EACH

}  // namespace dtensor::simd
