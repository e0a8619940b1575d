// Shared by kernels on rows.
#pragma once
#include <cstdint>

#include "dtensor/device/portable/executor.h"
#include "dtensor/ops/functions/math.h"
#include "dtensor/ops/kernels/operands.h"

namespace dtensor::kernels {

inline namespace DT_PORTABLE {

// exp(x) for x <= 0, with the bits that an element of a row has.
template <class C>
DT_HD C exp_softmax(C x) {
#ifdef __CUDACC__
  return fn::exp(x);
#else
  return simd::exp_softmax(simd::Vec<C>(x)).v[0];
#endif
}

}  // namespace DT_PORTABLE
}  // namespace dtensor::kernels
