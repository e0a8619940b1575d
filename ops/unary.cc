// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <memory>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using internal::elementwise_rule;

const internal::ArgsAccess& args_of(int index) {
  return internal::args_of(fn::UnaryFunctions(), index);
}

OpFacts facts_of(const fn::Function& f, int order) {
  const bool saves = order > 0 || !(f.linear() || f.affine());
  return {.differentiable = f.differentiable(),
          .saved_inputs = saves ? OpFacts::kAll : 0,
          .passes_exact = order == 0 && f.affine()};
}

// Computes f(x) for order 0. For orders 1 to 3 it takes (x, u) and computes
// f'(x) * u, f''(x) * u or f'''(x) * u. A "settled" operator takes no partial
// sums. It is used for a linear function with an infinite or NaN factor,
// because the results for the parts of a sum could not be added, and for slopes
// that may be infinite.
class Unary : public RuleOp {
 public:
  Unary(int index, int order, bool settled)
      : Unary(fn::unary_function(index), index, order, settled) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {f_.gives_bool ? DType::kBool : in[0]};
  }
  void compute(Compute& c) const override {
    c.run(kernels::Unary{
        .index = index_,
        .order = order_,
        .params = args().read(c.attrs),
        .of = internal::pointwise_arguments(c, c.in[0].dtype())});
  }
  InputGradients gradient(const GradientCall& g) const override;

  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs.push_back(internal::sample_operand(f_, 0, {5, 3}));
    if (order_ > 0) s.inputs.push_back({Shape{5, 3}});
    double p[fn::kMaxParams];
    internal::sample_numbers(f_, p);
    s.attrs = args().make(p);
    s.smooth = order_ == 0;
    return {s};
  }

 private:
  Unary(const fn::Function& f, int index, int order, bool settled)
      : RuleOp(std::string(f.name) + std::string(size_t(order), '\''),
               elementwise_rule(order > 0 ? 2 : 1, settled     ? ""
                                                   : order > 0 ? "linear 1"
                                                               : f.notes),
               facts_of(f, order)),
        index_(index),
        order_(order),
        f_(f) {}
  const internal::ArgsAccess& args() const { return args_of(index_); }

  int index_, order_;
  const fn::Function& f_;
};

const Unary& unary_op(int index, int order, bool settled = false) {
  using Ops = std::array<std::unique_ptr<const Unary>, 5>;
  static const auto* table = [] {
    auto* t = new std::vector<Ops>(fn::kNumUnary);
    for (int i = 0; i < fn::kNumUnary; ++i)
      for (int k = 0; k < 5; ++k) {
        const bool last = k == 4;
        (*t)[size_t(i)][size_t(k)] = std::make_unique<const Unary>(
            i, last ? 0 : k,
            last || (k > 0 && fn::unary_function(i).has_domain));
      }
    return t;
  }();
  return *(*table)[size_t(index)][size_t(settled ? 4 : order)];
}

InputGradients Unary::gradient(const GradientCall& g) const {
  const DistTensor& dy = g.cotangents[0];
  if (f_.affine()) return {dy};
  if (f_.linear()) return {apply1(*this, dy, g.attrs)};
  DT_CHECK(order_ < fn::kMaxOrder || !g.needed[0], internal::called(f_),
           "fourth derivatives are not available; call detach() on a gradient "
           "first");
  if (order_ == 0)
    return {apply1(unary_op(index_, 1), {g.inputs[0], dy}, g.attrs)};
  InputGradients grads(g.inputs.size());
  if (g.needed[0])
    grads[0] = mul(apply1(unary_op(index_, order_ + 1), g.inputs, g.attrs), dy);
  if (g.needed[1]) grads[1] = apply1(*this, {g.inputs[0], dy}, g.attrs);
  return grads;
}

// Whether the factor c of a linear function f(x) = c * x is finite. `number` is
// the function's parameter.
bool finite_slope(int index, double number) {
  if (index == fn::index_of<fn::DivScalar>) number = 1 / number;
  return std::isfinite(number);
}

}  // namespace

namespace internal {

DistTensor unary(int index, const DistTensor& x, Numbers numbers) {
  const fn::Function& f = fn::unary_function(index);
  check_defined(f.name, x);
  DType t = x.dtype();
  if (f.promotes)
    for (const Number& n : numbers)
      t = promote(t, weight_of(x), n.dtype, Weight::kNumber);
  t = type_for(f, t);
  if (index == fn::index_of<fn::PowScalar> && numbers.size() == 1)
    DT_CHECK(is_float(t) || numbers.begin()->value >= 0, "pow",
             "cannot raise {} to the power {}: negative powers of integers are "
             "not integers; write cast(x, DType::kF32)",
             name(t), numbers.begin()->value);
  const DistTensor in = cast(x, t);
  if (f.num_params == 0 && numbers.size() == 0)
    return apply1(unary_op(index, 0), in);
  double p[fn::kMaxParams];
  numbers_for(f, t, numbers, p);
  const bool settled = f.linear() && !finite_slope(index, p[0]);
  return apply1(unary_op(index, 0, settled), in,
                ::dtensor::args_of(index).make(p));
}

DistTensor unary_slope(int index, const DistTensor& x, const DistTensor& u) {
  const DistTensor both[] = {x, u};
  return apply1(unary_op(index, 1), both);
}

static const OpFamily kFamily("unary", [] {
  OpList all;
  for (int i = 0; i < fn::kNumUnary; ++i) all.push_back(&unary_op(i, 0));
  // Slopes have one of two rules, so one of each is listed. The tests of
  // functions run the slopes of all functions.
  all.push_back(&unary_op(fn::index_of<fn::Exp>, 1));
  all.push_back(&unary_op(fn::index_of<fn::Log>, 1));
  return all;
});

}  // namespace internal

DistTensor unary(std::string_view function, const DistTensor& x,
                 internal::Numbers numbers) {
  for (int i = 0; i < fn::kNumUnary; ++i)
    if (fn::unary_function(i).name == function)
      return internal::unary(i, x, numbers);
  fail("unary",
       "there is no function '{}' of one argument; write the name of one, such "
       "as exp",
       function);
}

}  // namespace dtensor
