// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <memory>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/contraction_op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using fn::By;
using internal::elementwise_rule;

constexpr const char* kSuffix[fn::kNumBy] = {"",     "'a",   "'b",  "'a'b",
                                             "'aa",  "'ab",  "'bb", "'aaa",
                                             "'aab", "'abb", "'bbb"};

const internal::ArgsAccess& args_of(int index) {
  return internal::args_of(fn::BinaryFunctions(), index);
}

// Whether the function is a sum of multiples of its operands. Its gradient then
// needs only the operands' shapes, which the decision has.
bool is_sum(int index) {
  return index == fn::index_of<fn::Add> || index == fn::index_of<fn::Sub> ||
         index == fn::index_of<fn::Lerp>;
}

// Computes f(a, b). Unless `by` is kNone, takes (a, b, u) and computes u times
// the derivative of f with respect to the operands that `by` names; kBoth gives
// two outputs, u times each first derivative.
class Binary : public RuleOp {
 public:
  Binary(int index, By by) : Binary(fn::binary_function(index), index, by) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return std::vector(by_ == By::kBoth ? 2 : 1,
                       f_.gives_bool ? DType::kBool : in[0]);
  }
  void compute(Compute& c) const override {
    c.run(kernels::Binary{
        .index = index_,
        .by = by_,
        .params = args().read(c.attrs),
        .of = internal::pointwise_arguments(c, c.in[0].dtype())});
  }
  InputGradients gradient(const GradientCall& g) const override {
    DT_CHECK(f_.slope_a || !g.needed[0], f_.name,
             "has no gradient by its first operand; call detach() on it");
    InputGradients grads = by_ == By::kNone
                               ? (f_.linear() ? of_linear(g) : of_value(g))
                               : of_slope(g);
    for (size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined())
        grads[i] = cotangent_sum(grads[i], g.decision->in[i]->shape());
    return grads;
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (auto [a, b] : {std::pair<Shape, Shape>({5, 3}, {5, 3}),
                        {{5, 3}, {3}},
                        {{2, 1, 3}, {5, 1}}}) {
      Sample s;
      s.inputs = {internal::sample_operand(f_, 0, a),
                  internal::sample_operand(f_, 1, b)};
      if (by_ != By::kNone)
        s.inputs.push_back({a.size() == 3 ? Shape{2, 5, 3} : a});
      double p[fn::kMaxParams];
      internal::sample_numbers(f_, p);
      s.attrs = args().make(p);
      s.smooth = by_ == By::kNone;
      list.push_back(s);
    }
    return list;
  }

 private:
  Binary(const fn::Function& f, int index, By by)
      : RuleOp(std::string(f.name) + kSuffix[int(by)],
               by == By::kNone
                   ? elementwise_rule(2, f.notes)
                   : elementwise_rule(3, f.has_domain ? "" : "linear 2",
                                      by == By::kBoth ? 2 : 1),
               {.differentiable = f.differentiable(),
                .saved_inputs = is_sum(index) ? 0 : OpFacts::kAll}),
        index_(index),
        by_(by),
        f_(f) {}
  const internal::ArgsAccess& args() const { return args_of(index_); }
  InputGradients of_linear(const GradientCall& g) const;
  InputGradients of_value(const GradientCall& g) const;
  InputGradients of_slope(const GradientCall& g) const;

  int index_;
  By by_;
  const fn::Function& f_;
};

// Whether of_linear() handles every linear function.
constexpr bool linear_ones_are_known() {
  for (int i = 0; i < fn::kNumBinary; ++i)
    if (fn::binary_function(i).linear() && i != fn::index_of<fn::Add> &&
        i != fn::index_of<fn::Sub> && i != fn::index_of<fn::Mul> &&
        i != fn::index_of<fn::Lerp>)
      return false;
  return true;
}
static_assert(linear_ones_are_known());

const Binary& binary_op(int index, By by = By::kNone) {
  using Ops = std::array<std::unique_ptr<const Binary>, fn::kNumBy>;
  static const auto* table = [] {
    auto* t = new std::vector<Ops>(fn::kNumBinary);
    for (int i = 0; i < fn::kNumBinary; ++i)
      for (int k = 0; k < fn::kNumBy; ++k)
        (*t)[size_t(i)][size_t(k)] =
            std::make_unique<const Binary>(i, static_cast<By>(k));
    return t;
  }();
  return *(*table)[size_t(index)][size_t(by)];
}

// The gradients of a linear function, made of operators that let partials pass.
InputGradients Binary::of_linear(const GradientCall& g) const {
  const DistTensor& dy = g.cotangents[0];
  InputGradients grads(2);
  if (index_ == fn::index_of<fn::Lerp>) {
    const double weight = args().read(g.attrs)[0];
    if (g.needed[0]) grads[0] = mul(dy, 1 - weight);
    if (g.needed[1]) grads[1] = mul(dy, weight);
  } else if (is_sum(index_)) {
    if (g.needed[0]) grads[0] = dy;
    if (g.needed[1]) grads[1] = index_ == fn::index_of<fn::Sub> ? neg(dy) : dy;
  } else {
    if (g.needed[0]) grads[0] = mul(dy, g.inputs[1]);
    if (g.needed[1]) grads[1] = mul(dy, g.inputs[0]);
  }
  return grads;
}

InputGradients Binary::of_value(const GradientCall& g) const {
  const DistTensor in[] = {g.inputs[0], g.inputs[1], g.cotangents[0]};
  InputGradients grads(2);
  if (g.needed[0] && g.needed[1])
    return apply(binary_op(index_, By::kBoth), in, g.attrs);
  if (g.needed[0]) grads[0] = apply1(binary_op(index_, By::kA), in, g.attrs);
  if (g.needed[1]) grads[1] = apply1(binary_op(index_, By::kB), in, g.attrs);
  return grads;
}

InputGradients Binary::of_slope(const GradientCall& g) const {
  DT_CHECK(fn::order_of(by_) < fn::kMaxOrder || !(g.needed[0] || g.needed[1]),
           name(),
           "fourth derivatives are not available; call detach() on a gradient "
           "first");
  InputGradients grads(3);
  const auto add_to = [&](size_t i, const DistTensor& x) {
    grads[i] = grads[i].defined() ? add(grads[i], x) : x;
  };
  const auto differentiate = [&](const DistTensor& dy, By slope) {
    if (!dy.defined()) return;
    for (size_t i : {0, 1})
      if (g.needed[i]) {
        const Binary& next = binary_op(index_, fn::also_by(slope, i == 1));
        add_to(i, mul(apply1(next, g.inputs, g.attrs), dy));
      }
    if (g.needed[2])
      add_to(2, apply1(binary_op(index_, slope), {g.inputs[0], g.inputs[1], dy},
                       g.attrs));
  };
  if (by_ == By::kBoth) {
    differentiate(g.cotangents[0], By::kA);
    differentiate(g.cotangents[1], By::kB);
  } else {
    differentiate(g.cotangents[0], by_);
  }
  return grads;
}

}  // namespace

namespace internal {

static void check_operand(const fn::Function& f, int i, const DistTensor& x) {
  DT_CHECK(x.defined(), f.name,
           "input {} of 2, counted from 0, is an undefined tensor; assign it a "
           "value first",
           i);
}

DistTensor binary(int index, const DistTensor& a, const DistTensor& b,
                  Numbers numbers) {
  const fn::Function& f = fn::binary_function(index);
  check_operand(f, 0, a);
  check_operand(f, 1, b);
  const DType t = type_for(
      f, a.dtype() == b.dtype()
             ? a.dtype()
             : promote(a.dtype(), weight_of(a), b.dtype(), weight_of(b)));
  DistTensor both[] = {a, b};
  for (DistTensor& x : both)
    if (x.dtype() != t) x = cast(x, t);
  if (f.num_params == 0 && numbers.size() == 0)
    return apply1(binary_op(index), both);
  double p[fn::kMaxParams];
  numbers_for(f, t, numbers, p);
  // With a weight that is not finite, the parts of a partial sum could become
  // infinities of both signs, whose sum is NaN. mul_scalar() reduces the
  // partial sum first for such a number.
  if (index == fn::index_of<fn::Lerp> && !std::isfinite(p[0])) {
    const DistTensor way = sub(both[1], both[0]);
    return p[0] < 0 ? add(both[0], mul_scalar(way, p[0]))
                    : sub(both[1], mul_scalar(way, 1 - p[0]));
  }
  return apply1(binary_op(index), both, ::dtensor::args_of(index).make(p));
}

DistTensor binary(int index, const DistTensor& a, Number b, Numbers numbers) {
  check_operand(fn::binary_function(index), 0, a);
  const DType t = promote(a.dtype(), weight_of(a), b.dtype, Weight::kNumber);
  // The functions below have kernels for a tensor and a number.
  if (t != DType::kBool) {
    if (index == fn::index_of<fn::Add>) return add_scalar(a, b);
    if (index == fn::index_of<fn::Mul>) return mul_scalar(a, b);
    if (index == fn::index_of<fn::Div>) return div_scalar(a, b);
    if (index == fn::index_of<fn::Pow>) return pow_scalar(a, b);
    if (index == fn::index_of<fn::Sub>) {
      b.value = -b.value;
      return add_scalar(a, b);
    }
  }
  const fn::Function& f = fn::binary_function(index);
  const DType in = type_for(f, t);
  return binary(index, cast(a, in), constant_like(a, b, in, f.name), numbers);
}

DistTensor binary(int index, Number a, const DistTensor& b, Numbers numbers) {
  check_operand(fn::binary_function(index), 1, b);
  const DType t = promote(a.dtype, Weight::kNumber, b.dtype(), weight_of(b));
  if (t != DType::kBool) {
    if (index == fn::index_of<fn::Add>) return add_scalar(b, a);
    if (index == fn::index_of<fn::Mul>) return mul_scalar(b, a);
    if (index == fn::index_of<fn::Sub>) return add_scalar(neg(cast(b, t)), a);
  }
  const fn::Function& f = fn::binary_function(index);
  const DType in = type_for(f, t);
  return binary(index, constant_like(b, a, in, f.name), cast(b, in), numbers);
}

static const OpFamily kFamily("binary", [] {
  OpList all;
  for (int i = 0; i < fn::kNumBinary; ++i) all.push_back(&binary_op(i));
  all.push_back(&binary_op(fn::index_of<fn::Maximum>, By::kA));
  all.push_back(&binary_op(fn::index_of<fn::Div>, By::kB));
  all.push_back(&binary_op(fn::index_of<fn::Maximum>, By::kBoth));
  all.push_back(&binary_op(fn::index_of<fn::Div>, By::kBoth));
  return all;
});

}  // namespace internal

DistTensor binary(std::string_view function, const DistTensor& a,
                  const DistTensor& b, internal::Numbers numbers) {
  for (int i = 0; i < fn::kNumBinary; ++i)
    if (fn::binary_function(i).name == function)
      return internal::binary(i, a, b, numbers);
  fail("binary",
       "there is no function '{}' of two arguments; write the name of one, "
       "such as atan2",
       function);
}

}  // namespace dtensor
