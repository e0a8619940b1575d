#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dtensor/async.h"
#include "dtensor/gather.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/local_product.h"
#include "dtensor/ops/op_lists.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using kernels::Epilogue;

// linear() without a bias and an activation: a contraction.
const Op& product_of_linear() {
  static const Op& op = product_op("linear", "...i,oi->...o");
  return op;
}

struct ProductMemo : Decision::Memo {
  ProductMemo(const Decision& d, size_t first) : local(d.rule->rule(), first) {}
  LocalProduct local;
  std::array<std::optional<ProductGradient>, 2> gradients;  // of x and weight
};
// For a product of inputs `first` and `first` + 1.
ProductMemo& memo(const Decision& d, size_t first = 0) {
  if (!d.memo) d.memo = std::make_shared<ProductMemo>(d, first);
  return static_cast<ProductMemo&>(*d.memo);
}

// REQUIRES: c.out[0] is contiguous, apart from a slice of its last dimension.
void multiply(Compute& c, const Epilogue& e) {
  if (memo(c.decision).local.run(c, e)) return;
  const Tensor& out = c.out[0];
  kernels::FinishGemm finish{{.type = out.dtype(), .c_type = out.dtype()}};
  kernels::Gemm& g = finish.of;
  g.n = out.shape().back();
  g.m = g.n ? out.numel() / g.n : 0;
  g.c_m = out.ndim() > 1 ? out.strides()[out.ndim() - 2] : g.n;
  g.c_n = 1;
  g.c = out.mutable_data();
  g.epilogue = e;
  c.run(finish);
}

// Only the weight may be read in boxes: a box of its rows gives some columns of
// the output, which multiply() can write.
Op::InBoxes weight_in_boxes(size_t i) {
  return i == 1 ? Op::InBoxes::kStrided : Op::InBoxes::kNo;
}

const ProductGradient& product_gradient_of(const GradientCall& g,
                                           size_t operand) {
  const Decision& d = *g.decision;
  std::optional<ProductGradient>& made = memo(d).gradients[operand];
  if (!made) {
    const BoundRule product(product_rule("...i,oi->...o"),
                            {g.inputs[0].shape(), g.inputs[1].shape()},
                            g.op.name());
    made = product_gradient("linear", product, d.assignment, operand);
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

// x, dy -> dweight, dbias: one product; its kernel may also sum dy. i! because
// each part of a split i would compute a dbias of its own.
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

// before, dy -> dbefore, and its sum over the rows
class GeluTanhBackward : public RuleOp {
 public:
  GeluTanhBackward()
      : RuleOp("linear_gelu_tanh_backward", "...o,...o->...o,o | linear 1",
               {.differentiable = false}) {}

  void compute(Compute& c) const override {
    const Rows x(c.in[0]), dy(c.in[1]);
    c.run(kernels::GeluTanhBackward{.x = x,
                                    .dy = dy,
                                    .dx = c.out[0].mutable_data(),
                                    .sum = c.out[1].mutable_data()});
  }
};

// before, dy, weight -> dbefore, [its sum over the rows]: backward through a
// linear layer, and through the activation that made its x, as one product.
class InputGeluTanhBackward : public RuleOp {
 public:
  explicit InputGeluTanhBackward(bool sum)
      : RuleOp("linear_input_gelu_tanh_backward",
               sum ? "...i,...o,oi->...i,i | linear 1; linear 2"
                   : "...i,...o,oi->...i | linear 1; linear 2",
               {.work = {2}, .differentiable = false}),
        sum_(sum) {}

  void compute(Compute& c) const override {
    const Tensor before = c.in[0].to_contiguous(), &out = c.out[0];
    void* const sum = sum_ ? c.out[1].mutable_data() : nullptr;
    Epilogue e;
    e.kind = Epilogue::kGeluTanhBackward;
    e.aux = const_cast<void*>(before.data());  // is only read
    e.c_sum = sum;
    if (memo(c.decision, 1).local.run(c, e)) return;
    const Rows x(before), dx(out);
    c.run(kernels::GeluTanhBackward{
        .x = x, .dy = dx, .dx = out.mutable_data(), .sum = sum});
  }

 private:
  bool sum_;
};

const Op& weight_gradient_op() {
  static const LinearWeightGradient op;
  return op;
}
const Op& gelu_tanh_backward_op() {
  static const GeluTanhBackward op;
  return op;
}
const Op& input_gelu_tanh_backward_op(bool sum) {
  static const InputGeluTanhBackward with(true), without(false);
  return sum ? with : without;
}

constexpr std::string_view kLinearGeluTanh = "linear_gelu_tanh";

// The gradient of a linear layer's x, which is computed when it is first read.
// The activation that made x may take it unread and include its own backward
// pass in the product's kernel. Either all ranks read it, or none.
class InputGradient final : public Pending {
 public:
  // A tensor with this pending product as its data.
  static DistTensor make(const GradientCall& g, const DistTensor& dy) {
    const ProductGradient& of = product_gradient_of(g, 0);
    const DistTensor& weight = g.inputs[1];
    const OpInput in[] = {{dy.spec(), dy.keep()},
                          {weight.spec(), weight.keep()}};
    auto impl = std::make_shared<DistTensor::Impl>();
    impl->spec = decide(*of.op, in, of.attrs, &of.assignment)->out[0];
    impl->run = dy.impl()->run;
    impl->lineage = dy.impl()->lineage;
    impl->lineage.hash =
        fold_lineage(impl->lineage.hash, weight.impl()->lineage.hash);
    // Waits for a gathered weight now, because it is forgotten afterwards.
    weight.impl()->part();
    impl->pending = std::make_shared<InputGradient>(g.decision, of, dy, weight);
    return DistTensor(std::move(impl));
  }
  // The pending product of dy, or null if dy is something else.
  static InputGradient* unread(const DistTensor& dy) {
    return dynamic_cast<InputGradient*>(dy.impl()->pending.get());
  }

  InputGradient(std::shared_ptr<const Decision> forward,
                const ProductGradient& of, DistTensor dy, DistTensor weight)
      : forward_(std::move(forward)),
        of_(of),
        in_{std::move(dy), std::move(weight)} {}

  const Tensor& wait() override {
    if (made_.defined()) return made_;
    const NoGrad no_grad;
    made_ = apply1(*of_.op, in_, of_.attrs, &of_.assignment).impl()->part();
    return made_;
  }
  uint64_t version() const override {
    return made_.defined() ? made_.storage()->version() : 0;
  }

  // dbefore and its sum, where x is gelu_tanh(before). REQUIRES: the gradient
  // of x has the layout of `before`. `last`: it will not be read again.
  std::vector<DistTensor> gelu_tanh_backward(const DistTensor& before, bool sum,
                                             bool last) {
    const DistTensor in[] = {before, in_[0], in_[1]};
    if (last) in_ = {};
    return apply(input_gelu_tanh_backward_op(sum), in, {}, &of_.assignment);
  }

 private:
  const std::shared_ptr<const Decision> forward_;  // has `of_`
  const ProductGradient& of_;
  std::array<DistTensor, 2> in_;
  Tensor made_;
};

// The gradient of x: pending if LinearGeluTanh made x and may use it unread.
DistTensor gradient_of_x(const GradientCall& g, const DistTensor& dy) {
  const DistTensor& x = g.inputs[0];
  const std::vector<size_t>& moved = g.decision->moved;
  const bool of_activation =
      x.impl()->node && x.impl()->output == 0 &&
      x.impl()->node->name() == kLinearGeluTanh &&
      std::find(moved.begin(), moved.end(), size_t{0}) == moved.end();
  if (grad_enabled() || !of_activation) return gradient_of_product(g, 0, dy);
  return InputGradient::make(g, dy);
}

// x, weight, bias -> y
class Linear : public RuleOp {
 public:
  Linear()
      : RuleOp("linear", "...i,oi,o->...o | linear 0,2; linear 1,2",
               {.work = {2}}) {}

  void compute(Compute& c) const override {
    // If the sum is split, only the first part adds the bias.
    const AxisMask axes = c.axes_of('i');
    bool first = true;
    for (int a = 0; axes >> a; ++a)
      first &= !(axes >> a & 1) || c.coord()[a] == 0;
    if (!first) {
      memo(c.decision).local.run(c);
      return;
    }
    const Tensor bias = c.in[2].to_contiguous();
    Epilogue e;
    e.kind = Epilogue::kBias;
    e.bias = bias.data();
    multiply(c, e);
  }
  InBoxes in_boxes(size_t i, DType) const override {
    return weight_in_boxes(i);
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const DistTensor& dy = g.cotangents[0];
    std::vector<DistTensor> grads(3);
    if (g.needed[0]) grads[0] = gradient_of_x(g, dy);
    if (g.needed[1] && g.needed[2] && sums_in_passing(g)) {
      const DistTensor in[] = {g.inputs[0], dy};
      const Assignment a = inherited(g);
      std::vector<DistTensor> both = apply(weight_gradient_op(), in, {}, &a);
      grads[1] = both[0];
      grads[2] = both[1];
      return grads;
    }
    if (g.needed[1]) grads[1] = gradient_of_product(g, 1, dy);
    if (g.needed[2]) grads[2] = sum_to(dy, g.inputs[2].shape());
    return grads;
  }

 private:
  // Whether the fused kernel gives the bias' gradient in the layout that a
  // separate sum over dy would give.
  static bool sums_in_passing(const GradientCall& g) {
    const Spec* out = g.decision->out[0];
    return !grad_enabled() && g.cotangents[0].spec() == out &&
           !out->partial_axes();
  }
};

// x, weight, [bias] -> gelu_tanh(before), before. It has those of Linear's
// assignments that give no partial.
class LinearGeluTanh : public RuleOp {
 public:
  explicit LinearGeluTanh(bool bias)
      : RuleOp(std::string(kLinearGeluTanh),
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
  InBoxes in_boxes(size_t i, DType) const override {
    return weight_in_boxes(i);
  }

  void restore(Compute& c) const override {
    row_unary(c, fn::index_of<fn::GeluTanh>, c.out[1], c.out[0]);
  }

  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    std::vector<DistTensor> grads(g.inputs.size());
    const bool sum = bias_ && g.needed[2];
    DistTensor dbefore;
    if (const DistTensor& dy = g.cotangents[0]; dy.defined()) {
      const DistTensor &before = g.outputs[1], in[] = {before, dy};
      const bool alone = !grad_enabled() && !g.cotangents[1].defined();
      std::vector<DistTensor> both;  // dbefore and its sum
      if (InputGradient* product = InputGradient::unread(dy);
          product && alone && dy.spec() == before.spec() && all_needed(g))
        both = product->gelu_tanh_backward(before, sum,
                                           dy.impl().use_count() == 1);
      else if (sum && alone)
        both = apply(gelu_tanh_backward_op(), in);
      else
        both = {internal::unary_slope(fn::index_of<fn::GeluTanh>, before, dy)};
      dbefore = both[0];
      if (both.size() > 1) grads[2] = both[1];
    }
    if (const DistTensor& more = g.cotangents[1]; more.defined())
      dbefore = dbefore.defined() ? add(dbefore, more) : more;
    if (g.needed[0]) grads[0] = gradient_of_x(g, dbefore);
    if (g.needed[1]) grads[1] = gradient_of_product(g, 1, dbefore);
    if (sum && !grads[2].defined())
      grads[2] = sum_to(dbefore, g.inputs[2].shape());
    return grads;
  }

 private:
  // If only some are requested now, SplitBackward may request the others later,
  // from the same cotangent; reading it once is then better.
  static bool all_needed(const GradientCall& g) {
    return std::find(g.needed.begin(), g.needed.end(), false) == g.needed.end();
  }

  bool bias_;
};

const Op& with_bias_op() {
  static const Linear op;
  return op;
}
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

// The decision of Linear for such inputs.
std::shared_ptr<const Decision> decided(const Op& op,
                                        std::span<const DistTensor> in) {
  InlineVec<OpInput, 3> inputs;
  for (const DistTensor& x : in)
    inputs.push_back({x.use_spec(), gathers(x) ? Keep::kStay : x.keep()});
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
  // Cases that need no kernel of their own.
  if (weight.ndim() == 1 || !is_float(t)) {
    DistTensor y = weight.ndim() == 1 ? matmul(in[0], in[1])
                                      : apply1(product_of_linear(), product);
    if (bias.defined()) y = add(y, in[2]);
    return then == Activation::kGeluTanh ? gelu_tanh(y) : y;
  }
  const Op& op = n == 3 ? with_bias_op() : product_of_linear();
  if (then == Activation::kNone) return apply1(op, all);
  const auto d = decided(op, all);
  if (d->out[0]->partial_axes()) return gelu_tanh(apply1(op, all));
  return apply1(gelu_tanh_op(n == 3), all, {}, &d->assignment);
}

OpList linear_ops() {
  return {&with_bias_op(),
          &product_of_linear(),
          &gelu_tanh_op(true),
          &gelu_tanh_op(false),
          &weight_gradient_op(),
          &gelu_tanh_backward_op(),
          &input_gelu_tanh_backward_op(true),
          &input_gelu_tanh_backward_op(false)};
}

}  // namespace dtensor
