// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <optional>
#include <span>

#include "dtensor/gather.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/local_product.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using kernels::Epilogue;

// linear() with neither a bias nor an activation is a contraction.
const Op& product_of_linear() {
  static const Op& op = product_op("linear", "...i,oi->...o");
  return op;
}

struct ProductMemo : Decision::Memo {
  explicit ProductMemo(const Decision& d) : local(d.rule->rule()) {}
  LocalProduct local;
  // By whether the run is reproducible; of x and weight.
  std::array<std::array<std::optional<ProductGradient>, 2>, 2> gradients;
};
ProductMemo& memo(const Decision& d) {
  if (!d.memo) d.memo = std::make_shared<ProductMemo>(d);
  return static_cast<ProductMemo&>(*d.memo);
}

// Computes the product with this epilogue.
void multiply(Compute& c, const Epilogue& e) {
  if (memo(c.decision).local.run(c, e)) return;
  const Tensor& out = c.out[0];
  kernels::FinishGemm finish{{.type = out.dtype(), .c_type = out.dtype()}};
  kernels::Gemm& g = finish.of;
  g.n = out.shape().back();
  g.m = g.n ? out.numel() / g.n : 0;
  g.c_m = g.n;
  g.c_n = 1;
  g.c = out.mutable_data();
  g.epilogue = e;
  c.run(finish);
}

const ProductGradient& product_gradient_of(const GradientCall& g,
                                           size_t operand) {
  const Decision& d = *g.decision;
  const bool leaves = has_exact_sums(g.inputs[0].dtype());
  std::optional<ProductGradient>& made = memo(d).gradients[leaves][operand];
  if (!made) {
    const BoundRule product(product_rule("...i,oi->...o"),
                            {g.inputs[0].shape(), g.inputs[1].shape()},
                            g.op.name());
    made = product_gradient("linear", product, d.assignment, operand, leaves);
  }
  return *made;
}

DistTensor gradient_of_product(const GradientCall& g, size_t operand,
                               const DistTensor& dy) {
  const ProductGradient& made = product_gradient_of(g, operand);
  DistTensor operands[] = {g.inputs[0], g.inputs[1]};
  operands[operand] = dy;
  return apply1(*made.op, operands, made.attrs, &made.assignment);
}

// x, dy -> dweight, dbias, by one product whose kernel may also sum dy. i has
// the mark "!", because each part of a split i would compute the whole dbias,
// and all of them would be added.
class LinearWeightGradient : public RuleOp {
 public:
  LinearWeightGradient()
      : RuleOp("linear_weight_gradient", "...i!,...o->oi,o | linear 1",
               {.work = {2}, .differentiable = false}) {}

  void compute(Compute& c) const override {
    const Tensor &dy = c.in[1], &dbias = c.out[1];
    Epilogue e;
    e.kind = Epilogue::kSumB;
    e.b_sum = dbias.mutable_data();
    if (memo(c.decision).local.run(c, e)) return;
    const uint32_t rows = (uint32_t{1} << (dy.ndim() - 1)) - 1;
    c.run(kernels::Reduce{.type = dy.dtype(),
                          .shape = dy.shape(),
                          .in = dy.data(),
                          .strides = dy.strides(),
                          .dims = rows,
                          .out = dbias.mutable_data()});
  }
};

// Whether LinearWeightGradient may compute the gradients of weight and bias
// together. It may only if the gradient of the bias gets the layout that a
// separate sum over dy would give it.
bool sums_in_passing(const GradientCall& g, const DistTensor& dy) {
  const Spec* out = g.decision->out[0];
  return !grad_enabled() && !reproducible(dy.dtype()) && g.needed[1] &&
         g.needed[2] && dy.spec() == out && !out->partial_axes();
}

// The gradients of x, weight and bias (if there is one), for the cotangent of
// x weight^T + bias.
InputGradients linear_gradients(const GradientCall& g, const DistTensor& dy) {
  const bool bias = g.inputs.size() > 2;
  InputGradients grads(g.inputs.size());
  if (g.needed[0]) grads[0] = gradient_of_product(g, 0, dy);
  if (bias && sums_in_passing(g, dy)) {
    const Assignment a = inherited(g);
    std::vector<DistTensor> both =
        apply(op_of<LinearWeightGradient>(), {g.inputs[0], dy}, {}, &a);
    grads[1] = both[0];
    grads[2] = both[1];
    return grads;
  }
  if (g.needed[1]) grads[1] = gradient_of_product(g, 1, dy);
  if (bias && g.needed[2]) grads[2] = cotangent_sum(dy, g.inputs[2].shape());
  return grads;
}

// x, weight, bias -> y
class Linear : public RuleOp {
 public:
  Linear()
      : RuleOp("linear", "...i,oi,o->...o | linear 0,2; linear 1,2",
               {.work = {2}}) {}

  void compute(Compute& c) const override {
    // If ranks split the sum over i, only one of them adds the bias.
    if (!c.first_of('i')) {
      memo(c.decision).local.run(c);
      return;
    }
    const Tensor bias = c.in[2].to_contiguous();
    Epilogue e;
    e.kind = Epilogue::kBias;
    e.bias = bias.data();
    multiply(c, e);
  }

  InputGradients gradient(const GradientCall& g) const override {
    return linear_gradients(g, g.cotangents[0]);
  }
};

// x, weight, [bias] -> gelu_tanh(before), before. Allows those of Linear's
// assignments that leave no partial output.
class LinearGeluTanh : public RuleOp {
 public:
  explicit LinearGeluTanh(bool bias)
      : RuleOp("linear_gelu_tanh",
               bias ? "...i!,oi,o->...o,...o" : "...i!,oi->...o,...o",
               {.work = {2}, .saves_outputs = true, .stored_outputs = 1u << 1}),
        bias_(bias) {}

  void compute(Compute& c) const override {
    const Tensor bias = bias_ ? c.in[2].to_contiguous() : Tensor();
    Epilogue e;
    e.kind = Epilogue::kGeluTanh;
    e.bias = bias_ ? bias.data() : nullptr;
    e.aux = c.out[1].mutable_data();
    multiply(c, e);
  }

  void restore(Compute& c) const override {
    row_unary(c, fn::index_of<fn::GeluTanh>, c.out[1], c.out[0]);
  }

  InputGradients gradient(const GradientCall& g) const override {
    DistTensor dbefore;
    if (const DistTensor& dy = g.cotangents[0]; dy.defined())
      dbefore =
          internal::unary_slope(fn::index_of<fn::GeluTanh>, g.outputs[1], dy);
    if (const DistTensor& more = g.cotangents[1]; more.defined())
      dbefore = dbefore.defined() ? add(dbefore, more) : more;
    return linear_gradients(g, dbefore);
  }

 private:
  bool bias_;
};

const Op& gelu_tanh_op(bool bias) {
  static const LinearGeluTanh with(true), without(false);
  return bias ? with : without;
}

void check(const DistTensor& x, const DistTensor& weight,
           const DistTensor& bias) {
  check_defined("linear", {x, weight});
  DT_CHECK(weight.ndim() == 1 || weight.ndim() == 2, "linear",
           "the weight is {}; it has to be [n, k] or [k]",
           weight.spec()->to_string());
  DT_CHECK(x.ndim() > 0 && x.size(-1) == weight.size(-1), "linear",
           "x is {} and the weight {}: their last dimensions have to be the "
           "same",
           x.spec()->to_string(), weight.spec()->to_string());
  if (!bias.defined()) return;
  Shape wanted = weight.shape();
  wanted.pop_back();
  DT_CHECK(bias.shape() == wanted, "linear",
           "the bias is {}, for the weight {}; its shape has to be {}",
           bias.spec()->to_string(), weight.spec()->to_string(),
           to_string(wanted));
}

// The decision that apply() will take for op with these inputs.
std::shared_ptr<const Decision> decided(const Op& op,
                                        std::span<const DistTensor> in) {
  InlineVec<OpInput, 3> inputs;
  for (const DistTensor& x : in) inputs.push_back(as_input(x));
  return decide(op, inputs);
}

}  // namespace

DistTensor linear(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias, Activation then) {
  check(x, weight, bias);
  DistTensor in[] = {x, weight, bias};
  const size_t n = bias.defined() ? 3 : 2;
  DType t = x.dtype();
  for (size_t i = 1; i < n; ++i) t = promote(t, in[i].dtype());
  for (size_t i = 0; i < n; ++i)
    if (in[i].dtype() != t) in[i] = cast(in[i], t);
  const std::span<const DistTensor> all(in, n), product(in, 2);
  // There is no fused kernel for a weight [k], or for integers.
  if (weight.ndim() == 1 || !is_float(t)) {
    DistTensor y = weight.ndim() == 1 ? matmul(in[0], in[1])
                                      : apply1(product_of_linear(), product);
    if (bias.defined()) y = add(y, in[2]);
    return then == Activation::kGeluTanh ? gelu_tanh(y) : y;
  }
  // A reproducible run rounds the product before it adds the bias.
  const bool apart = n == 3 && reproducible(t);
  const std::span<const DistTensor> together = apart ? product : all;
  const Op& fused = n == 3 ? op_of<Linear>() : product_of_linear();
  const Op& op = apart ? product_of_linear() : fused;
  if (then == Activation::kNone && !apart) return apply1(op, all);
  const auto d = decided(op, together);
  if (!d->out[0]->partial_axes())
    return apply1(then == Activation::kNone ? fused : gelu_tanh_op(n == 3), all,
                  {}, &d->assignment);
  DistTensor y = apply1(op, together);
  if (apart) y = add(y, in[2]);
  return then == Activation::kNone ? y : gelu_tanh(y);
}

static const OpFamily kFamily("linear", [] {
  return OpList{&op_of<Linear>(), &product_of_linear(), &gelu_tanh_op(true),
                &gelu_tanh_op(false), &op_of<LinearWeightGradient>()};
});

}  // namespace dtensor
