// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/composed.h"

#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// x * value. The number 1 leaves x as it is.
DistTensor times(const DistTensor& x, Number value) {
  return value.value == 1 && value.dtype == DType::kI64 ? x : mul(x, value);
}

}  // namespace

DistTensor addcmul(const DistTensor& x, const DistTensor& a,
                   const DistTensor& b, Number value) {
  check_defined("addcmul", {x, a, b});
  return add(x, times(mul(a, b), value));
}

DistTensor addcdiv(const DistTensor& x, const DistTensor& a,
                   const DistTensor& b, Number value) {
  check_defined("addcdiv", {x, a, b});
  DT_CHECK(is_float(a.dtype()) || is_float(b.dtype()), "addcdiv",
           "divides integers, {} by {}; cast one of them to a float type",
           a.spec()->to_string(), b.spec()->to_string());
  return add(x, times(div(a, b), value));
}

DistTensor glu(const DistTensor& x, int dim) {
  check_defined("glu", x);
  const int d = normalize_dim(dim, x.ndim(), "glu");
  DT_CHECK(x.size(d) % 2 == 0, "glu",
           "dimension {} of {} has an odd size, so it has no halves; pass a "
           "tensor whose size is even there",
           d, x.spec()->to_string());
  const int64_t half = x.size(d) / 2;
  return mul(narrow(x, d, 0, half), sigmoid(narrow(x, d, half, half)));
}

DistTensor prelu(const DistTensor& x, const DistTensor& weight) {
  check_defined("prelu", {x, weight});
  const int64_t n = numel(weight.shape()),
                channels = x.ndim() > 1 ? x.size(1) : 1;
  DT_CHECK(weight.ndim() <= 1 && (n == 1 || n == channels), "prelu",
           "the weight {} has {} elements, but {} has {} channels; pass a "
           "vector with 1 or {} elements",
           weight.spec()->to_string(), n, x.spec()->to_string(), channels,
           channels);
  // Where x > 0, the weight multiplies a 0, so that it has no gradient there.
  const DistTensor below = where(gt(x, 0), 0, x);
  return add(relu(x), mul(along_dim(weight, x.ndim(), x.ndim() > 1), below));
}

DistTensor allclose(const DistTensor& a, const DistTensor& b, double rtol,
                    double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan));
}

DistTensor equal(const DistTensor& a, const DistTensor& b) {
  check_defined("equal", {a, b});
  DT_CHECK(a.dtype() == b.dtype(), "equal",
           "cannot compare {} with {}; cast one of them to the other's type",
           a.spec()->to_string(), b.spec()->to_string());
  if (a.shape() != b.shape()) return full({}, 0, a.mesh(), {}, DType::kBool);
  return all(eq(a, b));
}

}  // namespace dtensor
