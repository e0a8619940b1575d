// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/special.h"

#include <cmath>

#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"

namespace dtensor {

DistTensor polygamma(int64_t n, const DistTensor& x) {
  check_defined("polygamma", x);
  DT_CHECK(n >= 0, "polygamma", "n is {}; write 0 or more", n);
  return n == 0 ? digamma(x) : polygamma_scalar(x, n);
}

DistTensor mvlgamma(const DistTensor& x, int64_t p) {
  check_defined("mvlgamma", x);
  DT_CHECK(p >= 1, "mvlgamma", "p is {}; write 1 or more", p);
  const auto dims = static_cast<double>(p);
  DistTensor sum = lgamma(x);
  for (int64_t i = 1; i < p; ++i)
    sum = sum + lgamma(x - static_cast<double>(i) / 2);
  return sum + dims * (dims - 1) / 4 * std::log(M_PI);
}

std::pair<DistTensor, DistTensor> frexp(const DistTensor& x) {
  check_defined("frexp", x);
  return {frexp_mantissa(x), cast(frexp_exponent(x), DType::kI32)};
}

}  // namespace dtensor
