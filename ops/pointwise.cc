// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/pointwise.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise_call.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace internal {

kernels::Pointwise pointwise_arguments(Compute& c, DType t) {
  kernels::Pointwise p{.type = t};
  p.shape = c.out[0].shape();
  p.out = c.out[0].mutable_data();
  if (c.out.size() > 1) p.second = c.out[1].mutable_data();
  for (size_t i = 0; i < c.in.size(); ++i) {
    p.in[i] = c.in[i].data();
    // Missing leading dimensions, and those of size 1, repeat.
    const Tensor& x = c.in[i];
    int extra = p.shape.size() - x.ndim();
    for (int d = 0; d < p.shape.size(); ++d)
      p.strides[i].push_back(
          d < extra || (x.shape()[d - extra] == 1 && p.shape[d] != 1)
              ? 0
              : x.strides()[d - extra]);
  }
  return p;
}

std::string elementwise_rule(int inputs, std::string_view notes, int outputs) {
  std::string t = "...";
  for (int i = 1; i < inputs; ++i) t += ",...";
  t += "->...";
  for (int i = 1; i < outputs; ++i) t += ",...";
  if (!notes.empty()) t += " | " + std::string(notes);
  return t;
}

SampleInput sample_operand(const fn::Function& f, int i, const Shape& shape) {
  SampleInput in;
  in.shape = shape;
  if (!fn::takes_floats(f.takes)) {
    in.values = SampleInput::Values::kIndex;
    in.bound = 16;
  } else if (i == 0 && !f.slope_a) {
    in.values = SampleInput::Values::kConstant;
  }
  in.lo = f.domain[i].lo;
  in.hi = f.domain[i].hi;
  return in;
}

void sample_numbers(const fn::Function& f, double* p) {
  for (int i = 0; i < f.num_params; ++i)
    p[i] = f.params[i].sample != 0 ? f.params[i].sample : f.params[i].fallback;
}

DType type_for(const fn::Function& f, DType t) {
  using fn::Takes;
  if (!has_arithmetic(t)) refuse_arithmetic(t);
  if (is_float(t)) {
    DT_CHECK(fn::takes_floats(f.takes), f.name,
             "takes integers{}, but got {}; write cast(x, DType::kI64) for a "
             "tensor x of floats, and an integer for a number",
             f.takes == Takes::kBits ? " and bools" : "", name(t));
    DT_CHECK(f.rounds || !is_half_float(t), f.name,
             "is not available in {}; write cast(x, DType::kF32)", name(t));
    return t;
  }
  if (f.takes == Takes::kFloats) return DType::kF32;
  if (t != DType::kBool || fn::takes_bools(f.takes)) return t;
  DT_CHECK(f.takes == Takes::kCounts, f.name,
           "does not take bools; write cast(x, DType::kI64)");
  return DType::kI64;
}

void numbers_for(const fn::Function& f, DType t,
                 std::span<const Number> numbers, double* p) {
  const int given = static_cast<int>(numbers.size());
  DT_CHECK(given >= f.num_required && given <= f.num_params, f.name,
           "the number of parameters is {}; pass {}", given,
           f.num_required == f.num_params
               ? fmt::format("{}", f.num_params)
               : fmt::format("{} to {}", f.num_required, f.num_params));
  for (int i = 0; i < f.num_params; ++i) {
    double v = f.params[i].fallback;
    if (i < given) {
      const Number& n = numbers[size_t(i)];
      v = n.value;
      check_exact(n, t, called(f));
    }
    if (f.finite && std::isinf(v) && is_float(t)) {
      double most = std::numeric_limits<float>::max();
      if (t == DType::kF64) most = std::numeric_limits<double>::max();
      if (t == DType::kBF16) most = 0x1.fep127;
      if (t == DType::kF16) most = 65504;
      v = std::copysign(most, v);
    }
    p[i] = v;
  }
}

Weight weight_of(const DistTensor& x) {
  return x.ndim() == 0 ? Weight::kScalar : Weight::kTensor;
}

void check_exact(Number n, DType t, std::string_view op) {
  DT_CHECK(is_float(t) || n.exact, op,
           "an integer near {:.0f} would be rounded, because a number is kept "
           "as a double; pass it as a tensor of i64, or write it as a float",
           n.value);
  DT_CHECK(t != DType::kI32 || n.dtype != DType::kI64 ||
               (n.value >= INT32_MIN && n.value <= INT32_MAX),
           op, "the number {} does not fit {}; write cast(x, DType::kI64)",
           n.value, name(t));
}

DistTensor constant_like(const DistTensor& x, Number n, DType t,
                         std::string_view op) {
  check_exact(n, t, op);
  return full({}, n.value, x.mesh(), {}, t);
}

}  // namespace internal

namespace {

using internal::constant_like;
using internal::elementwise_rule;
using internal::pointwise_arguments;
using internal::weight_of;

// A scalar 0 that broadcasts. (0 * dy would turn infinities into NaN.)
DistTensor zero_like(const DistTensor& dy) {
  return constant_like(dy, 0, dy.dtype(), "where");
}

class Where : public RuleOp {
 public:
  Where() : RuleOp("where", elementwise_rule(3, "linear 1,2")) {}
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {in[1]};
  }
  void compute(Compute& c) const override {
    c.run(kernels::Where{pointwise_arguments(c, c.in[1].dtype())});
  }
  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &dy = g.cotangents[0], &condition = g.inputs[0];
    DistTensor zero = zero_like(dy);
    InputGradients grads(3);
    if (g.needed[1])
      grads[1] = sum_to(where(condition, dy, zero), g.decision->in[1]->shape());
    if (g.needed[2])
      grads[2] = sum_to(where(condition, zero, dy), g.decision->in[2]->shape());
    return grads;
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{5, 3}}, {Shape{5, 3}}, {Shape{3}}};
    s.inputs[0].values = SampleInput::Values::kBool;
    return {s};
  }
};

struct CastArgs {
  static constexpr Fields kFields = {"to"};
  DType to;
};

// Which partials may pass depends on both types (see cast_op()).
class Cast : public RuleOp {
 public:
  explicit Cast(std::string_view notes)
      : RuleOp("cast", elementwise_rule(1, notes),
               {.saved_inputs = 0, .passes_exact = true}) {}
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs& attrs) const override {
    return {attrs.as<CastArgs>().to};
  }
  void compute(Compute& c) const override {
    const Tensor &x = c.in[0], &y = c.out[0];
    y.device().cast(c.stream, y.shape(), y.dtype(), y.mutable_data(),
                    y.strides(), x.dtype(), x.data(), x.strides());
  }
  InputGradients gradient(const GradientCall& g) const override {
    // The cotangent of an exact sum is that of the sum, a float. An exact
    // cotangent is rounded where it ends.
    const DType from = g.decision->in[0]->dtype();
    const DistTensor& dy = g.cotangents[0];
    const bool same = from == DType::kExact || dy.dtype() == DType::kExact;
    return {same ? dy : cast(dy, from)};
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{5, 3}}};
    const bool linear = rule().notes().size() == 2;
    const DType to = rule().notes().empty() ? DType::kBool
                     : linear               ? DType::kF64
                                            : DType::kI32;
    s.attrs = CastArgs{to};
    return {s};
  }
};

// Whether casts of the parts of a sum add up to the cast of the sum. This holds
// if `to` represents every value of `from` exactly, and between integers, whose
// sums wrap around.
bool keeps_sums(DType from, DType to) {
  if (is_float(to))
    return is_float(from) ? promote(from, to) == to
                          : from == DType::kBool ||
                                (from == DType::kI32 && to == DType::kF64);
  return !is_float(from);
}

const Cast& cast_op(DType from, DType to) {
  static const Cast linear("linear 0; up 0"), monotone("up 0"), neither("");
  if (to == DType::kBool || to == DType::kI8) return neither;
  return keeps_sums(from, to) ? linear : monotone;
}

const Where& where_op() {
  static const Where op;
  return op;
}

}  // namespace

static const OpFamily kFamily("pointwise", [] {
  return OpList{&where_op(), &cast_op(DType::kF64, DType::kF64),
                &cast_op(DType::kF64, DType::kI32),
                &cast_op(DType::kF64, DType::kBool)};
});

DistTensor clamp_min(const DistTensor& x, Number min) { return clamp(x, min); }

DistTensor clamp_max(const DistTensor& x, Number max) {
  // A bool, the weakest kind of number, does not widen integers.
  Number none = false;
  none.value = -HUGE_VAL;
  return clamp(x, none, max);
}

DistTensor lerp(const DistTensor& a, const DistTensor& b,
                const DistTensor& weight) {
  check_defined("lerp", {a, b, weight});
  const DistTensor way = b - a;
  return where(lt(weight, 0.5), a + way * weight, b - way * (1 - weight));
}

DistTensor clone(const DistTensor& x) {
  check_defined("clone", x);
  return x.dtype() == DType::kBool ? bitwise_or(x, x) : positive(x);
}

DistTensor where(const DistTensor& condition, const DistTensor& a,
                 const DistTensor& b) {
  check_defined("where", {condition, a, b});
  DT_CHECK(condition.dtype() == DType::kBool, "where",
           "the condition is {}, not bool; write ne(condition, 0)",
           name(condition.dtype()));
  const DType t = promote(a.dtype(), weight_of(a), b.dtype(), weight_of(b));
  DistTensor all[] = {condition, cast(a, t), cast(b, t)};
  return apply1(where_op(), all);
}
DistTensor where(const DistTensor& condition, const DistTensor& a, Number b) {
  check_defined("where", {condition, a});
  const DType t = promote(a.dtype(), weight_of(a), b.dtype, Weight::kNumber);
  return where(condition, cast(a, t), constant_like(a, b, t, "where"));
}
DistTensor where(const DistTensor& condition, Number a, const DistTensor& b) {
  DT_CHECK(b.defined(), "where",
           "input 2 of 3, counted from 0, is an undefined tensor; assign it a "
           "value first");
  const DType t = promote(a.dtype, Weight::kNumber, b.dtype(), weight_of(b));
  return where(condition, constant_like(b, a, t, "where"), cast(b, t));
}

DistTensor where(const DistTensor& condition, Number a, Number b) {
  check_defined("where", condition);
  const DType t = promote(a.dtype, b.dtype);
  return where(condition, constant_like(condition, a, t, "where"),
               constant_like(condition, b, t, "where"));
}

DistTensor cast(const DistTensor& x, DType t) {
  check_defined("cast", x);
  if (x.dtype() == t) return x;
  return apply1(cast_op(x.dtype(), t), x, CastArgs{t});
}

}  // namespace dtensor
