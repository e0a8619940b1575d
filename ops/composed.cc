// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/composed.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// x * value. The number 1 leaves x as it is.
DistTensor times(const DistTensor& x, Number value) {
  return value.value == 1 && value.dtype == DType::kI64 ? x : mul(x, value);
}

// x + a * b in one pass over the data.
class MulAdd : public RuleOp {
 public:
  MulAdd()
      : RuleOp("addcmul",
               internal::elementwise_rule(3, "linear 0,1; linear 0,2"),
               {.saved_inputs = 0b110}) {}
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {in[0]};
  }
  void compute(Compute& c) const override {
    c.run(kernels::MulAdd{internal::pointwise_arguments(c, c.in[0].dtype())});
  }
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor& dy = g.cotangents[0];
    InputGradients grads{dy, {}, {}};
    if (g.needed[1]) grads[1] = mul(dy, g.inputs[2]);
    if (g.needed[2]) grads[2] = mul(dy, g.inputs[1]);
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined())
        grads[i] = cotangent_sum(grads[i], g.decision->in[i]->shape());
    return grads;
  }
  std::vector<Sample> samples() const override {
    return {{{{{5, 3}}, {{5, 3}}, {{3}}}, {}, true},
            {{{{3}}, {{2, 1, 3}}, {{5, 1}}}, {}, true}};
  }
};

const Op& mul_add_op() {
  static const MulAdd op;
  return op;
}

}  // namespace

static const OpFamily kFamily("composed", [] { return OpList{&mul_add_op()}; });

DistTensor addcmul(const DistTensor& x, const DistTensor& a,
                   const DistTensor& b, Number value) {
  check_defined("addcmul", {x, a, b});
  if (value.value == 1 && is_float(x.dtype()) && a.dtype() == x.dtype() &&
      b.dtype() == x.dtype())
    return apply1(mul_add_op(), {x, a, b});
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
