// SPDX-License-Identifier: Apache-2.0
// Special functions that need more than functions/special.h has. All are
// differentiable.
#pragma once
#include <cstdint>
#include <utility>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// The derivative n of digamma(x), infinite if it is out of range. Throws Error
// if n < 0.
DistTensor polygamma(int64_t n, const DistTensor& x);
// The logarithm of the multivariate gamma function of dimension p: the sum of
// lgamma(x - i / 2) over i < p, plus p (p - 1) / 4 log(pi). Throws Error if
// p < 1.
DistTensor mvlgamma(const DistTensor& x, int64_t p);

// {mantissa, exponent}: x = mantissa * 2^exponent, where the exponent is an
// i32, and |mantissa| is in [0.5, 1). If x is 0, infinite or NaN, the mantissa
// is x, and the exponent is 0.
std::pair<DistTensor, DistTensor> frexp(const DistTensor& x);

}  // namespace dtensor
