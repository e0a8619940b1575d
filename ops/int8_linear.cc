// SPDX-License-Identifier: Apache-2.0
#include <span>

#include "dtensor/autograd.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

// x, weight, scale, [bias] -> y
class Int8Linear : public RuleOp {
 public:
  explicit Int8Linear(bool bias)
      : RuleOp("int8_linear",
               bias ? "...i,oi,o,o->...o | linear 0,3; linear 2,3"
                    : "...i,oi,o->...o | linear 0; linear 2",
               {.work = {2}, .sums = OpFacts::Sums::kTogether}) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    DT_CHECK(is_float(in[2]), name(),
             "the scale is {}, but must be f32, f64, bf16 or f16; make it with "
             "to_int8()",
             dtensor::name(in[2]));
    DT_CHECK(in[1] == DType::kI8, name(),
             "the weight is {}, but must be i8; make it with to_int8(), or "
             "call linear()",
             dtensor::name(in[1]));
    if (in.size() > 3) check_one_type(name(), in, 3);
    return {in[0]};
  }

  void compute(Compute& c) const override {
    const Tensor x = c.in[0].to_contiguous(), weight = c.in[1].to_contiguous(),
                 scale = converted(c.in[2].to_contiguous(),
                                   kernels::stat_of(x.dtype()));
    kernels::Int8Linear a{.type = x.dtype()};
    a.n = weight.shape()[0], a.k = weight.shape()[1];
    a.m = a.n ? c.out[0].numel() / a.n : 0;
    a.x = x.data(), a.weight = weight.ptr<int8_t>(), a.scale = scale.data();
    // If ranks split the sum over i, only one of them adds the bias.
    Tensor bias;
    if (c.in.size() > 3 && c.first_of('i')) {
      bias = c.in[3].to_contiguous();
      a.bias = bias.data();
    }
    a.y = c.out[0].mutable_data();
    c.run(a);
  }

  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &dy = g.cotangents[0], &x = g.inputs[0],
                     &scale = g.inputs[2];
    // Half types compute in f32. In f16, unscaled products could overflow, and
    // scaled gradients could vanish.
    const DType t = x.dtype(), wide = kernels::stat_of(t);
    const DistTensor weight =
        g.needed[0] || g.needed[2] ? cast(g.inputs[1], wide) : DistTensor();
    InputGradients grads(g.inputs.size());
    if (g.needed[0]) grads[0] = cast(matmul(cast(dy, wide) * scale, weight), t);
    if (g.needed[2])
      grads[2] = cast(
          sum_to(cast(dy, wide) * linear(cast(x, wide), weight), scale.shape()),
          scale.dtype());
    if (grads.size() > 3 && g.needed[3])
      grads[3] = sum_to(dy, g.inputs[3].shape());
    return grads;
  }

  std::vector<Sample> samples() const override {
    Sample s = RuleOp::samples()[0];
    s.inputs[1].values = SampleInput::Values::kInt8;
    return {s};
  }
};

const Op& int8_op(bool bias) {
  static const Int8Linear with(true), without(false);
  return bias ? with : without;
}

}  // namespace

DistTensor int8_linear(const DistTensor& x, const DistTensor& weight,
                       const DistTensor& scale, const DistTensor& bias) {
  const DistTensor in[] = {x, weight, scale, bias};
  const size_t n = bias.defined() ? 4 : 3;
  return apply1(int8_op(n == 4), std::span(in, n));
}

Int8Weight to_int8(const DistTensor& weight) {
  check_defined("to_int8", {weight});
  check_float("to_int8", weight.dtype());
  DT_CHECK(weight.ndim() == 2, "to_int8",
           "the weight is {}; it has to be [n, k]", weight.spec()->to_string());
  const NoGrad no_grad;
  DistTensor w = cast(weight, kernels::stat_of(weight.dtype()));
  const DistTensor scale = amax(abs(w), {1}, true) / 127;
  // Step by step, so that at most two copies exist at a time.
  w = w / scale;
  w = round(w);
  return {cast(w, DType::kI8), view(scale, {w.size(0)})};
}

static const OpFamily kFamily("int8_linear", [] {
  return OpList{&int8_op(true), &int8_op(false)};
});

}  // namespace dtensor
