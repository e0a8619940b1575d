#include "dtensor/ops/pointwise.h"

#include <array>
#include <memory>
#include <string>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/functions.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/random.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The numbers of a function like x + a or clamp(x, a, b).
struct UnaryArgs {
  static constexpr Fields kFields = {value("a"), value("b")};
  double a = 0, b = 0;
};
struct CastArgs {
  static constexpr Fields kFields = {"to"};
  DType to;
};

kernels::Pointwise arguments(Compute& c) {
  kernels::Pointwise p;
  p.shape = c.out[0].shape();
  p.out = c.out[0].data();
  for (size_t i = 0; i < c.in.size(); ++i) {
    p.in[i] = c.in[i].data();
    // Missing leading dimensions, and those of size 1, are repeated.
    const Tensor& t = c.in[i];
    int extra = p.shape.size() - t.ndim();
    for (int d = 0; d < p.shape.size(); ++d)
      p.strides[i].push_back(
          d < extra || (t.shape()[d - extra] == 1 && p.shape[d] != 1)
              ? 0
              : t.strides()[d - extra]);
  }
  return p;
}

// A scalar that broadcasts; 0 * dy would turn infinities into NaN.
DistTensor zero_like(const DistTensor& dy) {
  return full({}, 0, dy.mesh(), {}, dy.dtype());
}

std::string elementwise(size_t inputs, std::string_view notes) {
  std::string t = "...";
  for (size_t i = 1; i < inputs; ++i) t += ",...";
  t += "->...";
  if (!notes.empty()) t += " | " + std::string(notes);
  return t;
}

Sample sample(std::initializer_list<Shape> shapes,
              SampleInput::Values values = SampleInput::Values::kAny) {
  Sample s;
  for (const Shape& shape : shapes) s.inputs.push_back({shape, values, 0});
  return s;
}

// What is known of a function besides its value. A function without a row is
// taken to be neither linear nor monotone, which is always right.
struct Traits {
  std::string_view name, notes;
};
constexpr Traits kTraits[] = {{"neg", "linear 0; down 0"},
                              {"mul_scalar", "linear 0"},
                              {"add_scalar", "affine 0; up 0"},
                              {"exp", "up 0"},
                              {"expm1", "up 0"},
                              {"tanh", "up 0"},
                              {"sigmoid", "up 0"},
                              {"relu", "up 0"},
                              {"softplus", "up 0"},
                              {"erf", "up 0"},
                              {"clamp", "up 0"},
                              {"sign", "up 0"},
                              {"floor", "up 0"},
                              {"ceil", "up 0"},
                              {"round", "up 0"}};

std::string_view notes_of(std::string_view function) {
  for (const Traits& t : kTraits)
    if (t.name == function) return t.notes;
  return "";
}

// f(x) for order 0; f'(x) u and f''(x) u of (x, u) for orders 1 and 2.
class Unary : public Op {
 public:
  Unary(int index, int order)
      : Op(std::string(fn::name_of(index)) + std::string(size_t(order), '\'')),
        index_(index),
        order_(order),
        rule_(order == 0 ? elementwise(1, notes_of(fn::name_of(index)))
                         : elementwise(2, "linear 1")) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(rule_, shapes, name());
  }
  void compute(Compute& c) const override {
    double numbers[2] = {};
    if (const auto* args = c.attrs.get<UnaryArgs>())
      numbers[0] = args->a, numbers[1] = args->b;
    c.k.unary(c.stream, index_, order_, c.in[0].dtype(), numbers, arguments(c));
  }
  bool linear() const {
    return index_ == fn::index_of<fn::Neg> ||
           index_ == fn::index_of<fn::MulScalar> ||
           index_ == fn::index_of<fn::AddScalar>;
  }
  bool saves_inputs() const override { return order_ > 0 || !linear(); }
  std::vector<DistTensor> gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override;

 private:
  int index_, order_;
  Rule rule_;
};

const Unary& unary_op(int index, int order) {
  static const auto* table = [] {
    auto* t = new std::vector<std::array<std::unique_ptr<const Unary>, 3>>(
        fn::kNumUnary);
    for (int i = 0; i < fn::kNumUnary; ++i)
      for (int k = 0; k < 3; ++k)
        (*t)[size_t(i)][size_t(k)] = std::make_unique<const Unary>(i, k);
    return t;
  }();
  return *(*table)[size_t(index)][size_t(order)];
}

std::vector<DistTensor> Unary::gradient(const GradientCall& g) const {
  const DistTensor& dy = g.cotangents[0];
  if (order_ == 0 && linear()) {
    if (index_ == fn::index_of<fn::AddScalar>) return {dy};
    return {apply1(*this, {&dy, 1}, g.attrs)};
  }
  DT_CHECK(order_ < 2 || !g.needed[0], name(),
           "third derivatives are not available");
  std::vector<DistTensor> grads(g.inputs.size());
  if (order_ == 0) {
    DistTensor both[] = {g.inputs[0], dy};
    return {apply1(unary_op(index_, 1), both, g.attrs)};
  }
  if (g.needed[0]) {
    DistTensor both[] = {g.inputs[0], g.inputs[1]};
    grads[0] = mul(apply1(unary_op(index_, order_ + 1), both, g.attrs), dy);
  }
  if (g.needed[1]) {
    DistTensor both[] = {g.inputs[0], dy};
    grads[1] = apply1(*this, both, g.attrs);
  }
  return grads;
}

std::vector<Sample> Unary::samples() const {
  // Positive arguments are in the domain of every function.
  using Values = SampleInput::Values;
  std::string_view f = fn::name_of(index_);
  bool positive = f == "log" || f == "sqrt" || f == "rsqrt" ||
                  f == "reciprocal" || f == "pow_scalar" || f == "log1p";
  Values values = positive ? Values::kPositive : Values::kAny;
  Sample s = sample({Shape{5, 3}}, values);
  if (order_ > 0) s.inputs.push_back({Shape{5, 3}, Values::kAny, 0});
  // pow(-0.7), clamp(-0.7, 1.3)
  if (fn::num_params_of(index_) > 0) s.attrs = UnaryArgs{-0.7, 1.3};
  s.smooth = order_ == 0;
  return {s};
}

class Binary : public Op {
 public:
  explicit Binary(int index)
      : Op(std::string(fn::binary_name_of(index))),
        index_(index),
        rule_(elementwise(2, notes(index))) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(rule_, shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {fn::gives_bool(index_) ? DType::kBool : in[0]};
  }
  void compute(Compute& c) const override {
    c.k.binary(c.stream, index_, c.in[0].dtype(), arguments(c));
  }
  bool differentiable() const override { return !fn::gives_bool(index_); }
  bool saves_inputs() const override {
    return index_ != fn::binary_index_of<fn::Add> &&
           index_ != fn::binary_index_of<fn::Sub>;
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override;

  std::vector<Sample> samples() const override {
    using Values = SampleInput::Values;
    Values values = index_ == fn::binary_index_of<fn::Pow> ||
                            index_ == fn::binary_index_of<fn::Div>
                        ? Values::kPositive
                        : Values::kAny;
    if (index_ >= fn::binary_index_of<fn::LogicalAnd>) values = Values::kBool;
    return {sample({Shape{5, 3}, Shape{5, 3}}, values),
            sample({Shape{5, 3}, Shape{3}}, values),
            sample({Shape{2, 1, 3}, Shape{5, 1}}, values)};
  }

 private:
  static std::string_view notes(int index) {
    switch (index) {
      case fn::binary_index_of<fn::Add>:
      case fn::binary_index_of<fn::Sub>:
        return "linear 0,1";
      case fn::binary_index_of<fn::Mul>:
        return "linear 0; linear 1";
      case fn::binary_index_of<fn::Div>:
        return "linear 0";
      case fn::binary_index_of<fn::Maximum>:
        return "max 0,1; up 0; up 1";
      case fn::binary_index_of<fn::Minimum>:
        return "min 0,1; up 0; up 1";
      default:
        return "";
    }
  }
  int index_;
  Rule rule_;
};

std::vector<DistTensor> Binary::gradient(const GradientCall& g) const {
  const DistTensor &dy = g.cotangents[0], &a = g.inputs[0], &b = g.inputs[1];
  // The operands' shapes come from the decision: add saves nothing.
  auto shape = [&](size_t i) { return g.decision->in[i]->shape(); };
  DistTensor da, db;
  bool na = g.needed[0], nb = g.needed[1];
  switch (index_) {
    case fn::binary_index_of<fn::Add>:
      da = db = dy;
      break;
    case fn::binary_index_of<fn::Sub>:
      da = dy;
      if (nb) db = neg(dy);
      break;
    case fn::binary_index_of<fn::Mul>:
      if (na) da = mul(dy, b);
      if (nb) db = mul(dy, a);
      break;
    case fn::binary_index_of<fn::Div>:
      if (na || nb) da = div(dy, b);
      if (nb) db = neg(mul(da, div(a, b)));
      break;
    case fn::binary_index_of<fn::Pow>:
      if (na) da = mul(dy, mul(b, pow(a, sub(b, 1.0))));
      if (nb) db = mul(dy, mul(pow(a, b), log(a)));
      break;
    default: {  // maximum, minimum: ties share evenly, as in PyTorch
      DistTensor tie = mul(dy, 0.5), zero = zero_like(dy);
      bool max = index_ == fn::binary_index_of<fn::Maximum>;
      DistTensor even = where(eq(a, b), tie, zero);
      if (na) da = add(where(max ? gt(a, b) : lt(a, b), dy, zero), even);
      if (nb) db = add(where(max ? lt(a, b) : gt(a, b), dy, zero), even);
    }
  }
  std::vector<DistTensor> grads(2);
  if (na) grads[0] = sum_to(da, shape(0));
  if (nb) grads[1] = sum_to(db, shape(1));
  return grads;
}

const Binary& binary_op(int index) {
  static const auto* table = [] {
    auto* t = new std::vector<std::unique_ptr<const Binary>>;
    for (int i = 0; i < fn::kNumBinary; ++i)
      t->push_back(std::make_unique<const Binary>(i));
    return t;
  }();
  return *(*table)[size_t(index)];
}

template <class F>
DistTensor binary(const DistTensor& a, const DistTensor& b) {
  DType t = promote(a.dtype(), b.dtype());
  constexpr int kIndex = fn::binary_index_of<F>;
  if constexpr (kIndex < fn::binary_index_of<fn::Eq>)
    if (t == DType::kBool) t = DType::kI64;
  if (std::is_same_v<F, fn::Div> && !is_float(t)) t = DType::kF32;
  DistTensor both[] = {cast(a, t), cast(b, t)};
  return apply1(binary_op(kIndex), both);
}

template <class F>
DistTensor unary_of(const DistTensor& x, const UnaryArgs& args = {}) {
  constexpr int kIndex = fn::index_of<F>;
  if (!is_float(x.dtype()) &&
      !(fn::integral_of(kIndex) && x.dtype() != DType::kBool)) {
    DistTensor f = cast(x, DType::kF32);
    return apply1(unary_op(kIndex, 0), {&f, 1}, args);
  }
  return apply1(unary_op(kIndex, 0), {&x, 1}, args);
}

// A number keeps an integer tensor's type only if it is an integer itself.
DistTensor for_number(const DistTensor& x, double v) {
  return !is_float(x.dtype()) && v != static_cast<double>(int64_t(v))
             ? cast(x, DType::kF32)
             : x;
}

class Where : public Op {
 public:
  Where() : Op("where"), rule_(elementwise(3, "linear 1,2")) {}
  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(rule_, shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {in[1]};
  }
  void compute(Compute& c) const override {
    c.k.where(c.stream, c.in[1].dtype(), arguments(c));
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const DistTensor &dy = g.cotangents[0], &condition = g.inputs[0];
    DistTensor zero = zero_like(dy);
    std::vector<DistTensor> grads(3);
    if (g.needed[1])
      grads[1] = sum_to(where(condition, dy, zero), g.decision->in[1]->shape());
    if (g.needed[2])
      grads[2] = sum_to(where(condition, zero, dy), g.decision->in[2]->shape());
    return grads;
  }
  std::vector<Sample> samples() const override {
    Sample s = sample({Shape{5, 3}, Shape{5, 3}, Shape{3}});
    s.inputs[0].values = SampleInput::Values::kBool;
    return {s};
  }

 private:
  Rule rule_;
};

// Whether sums pass depends on both types.
class Cast : public Op {
 public:
  explicit Cast(std::string_view notes)
      : Op("cast"), rule_(elementwise(1, notes)) {}
  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(rule_, shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs& attrs) const override {
    return {attrs.as<CastArgs>().to};
  }
  void compute(Compute& c) const override {
    c.k.cast(c.stream, c.in[0].dtype(), c.out[0].dtype(), arguments(c));
  }
  bool saves_inputs() const override { return false; }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    return {cast(g.cotangents[0], g.decision->in[0]->dtype())};
  }
  std::vector<Sample> samples() const override {
    Sample s = sample({Shape{5, 3}});
    s.attrs = CastArgs{rule_.notes().empty()       ? DType::kBool
                       : rule_.notes().size() == 1 ? DType::kI32
                                                   : DType::kF64};
    return {s};
  }

 private:
  Rule rule_;
};

// To a float (from anything), to an integer, to bool.
const Cast& cast_op(DType from, DType to) {
  static const Cast linear("linear 0; up 0"), monotone("up 0"), neither("");
  if (to == DType::kBool) return neither;
  return is_float(to) || !is_float(from) ? linear : monotone;
}

const Where& where_op() {
  static const Where op;
  return op;
}

}  // namespace

std::vector<const Op*> pointwise_ops() {
  std::vector<const Op*> all;
  for (int order = 0; order < 2; ++order)
    for (int i = 0; i < fn::kNumUnary; ++i) all.push_back(&unary_op(i, order));
  for (int i = 0; i < fn::kNumBinary; ++i) all.push_back(&binary_op(i));
  all.push_back(&where_op());
  all.push_back(&cast_op(DType::kF64, DType::kF32));
  all.push_back(&cast_op(DType::kF64, DType::kI32));
  all.push_back(&cast_op(DType::kF64, DType::kBool));
  return all;
}

DistTensor add(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Add>(a, b);
}
DistTensor sub(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Sub>(a, b);
}
DistTensor mul(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Mul>(a, b);
}
DistTensor div(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Div>(a, b);
}
DistTensor pow(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Pow>(a, b);
}
DistTensor maximum(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Maximum>(a, b);
}
DistTensor minimum(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Minimum>(a, b);
}
DistTensor add(const DistTensor& a, double b) {
  return unary_of<fn::AddScalar>(for_number(a, b), {b});
}
DistTensor sub(const DistTensor& a, double b) { return add(a, -b); }
DistTensor mul(const DistTensor& a, double b) {
  return unary_of<fn::MulScalar>(for_number(a, b), {b});
}
DistTensor div(const DistTensor& a, double b) {
  return mul(is_float(a.dtype()) ? a : cast(a, DType::kF32), 1 / b);
}
DistTensor pow(const DistTensor& a, double b) {
  return unary_of<fn::PowScalar>(for_number(a, b), {b});
}

DistTensor eq(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Eq>(a, b);
}
DistTensor ne(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Ne>(a, b);
}
DistTensor lt(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Lt>(a, b);
}
DistTensor le(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Le>(a, b);
}
DistTensor gt(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Gt>(a, b);
}
DistTensor ge(const DistTensor& a, const DistTensor& b) {
  return binary<fn::Ge>(a, b);
}
DistTensor logical_and(const DistTensor& a, const DistTensor& b) {
  return binary<fn::LogicalAnd>(cast(a, DType::kBool), cast(b, DType::kBool));
}
DistTensor logical_or(const DistTensor& a, const DistTensor& b) {
  return binary<fn::LogicalOr>(cast(a, DType::kBool), cast(b, DType::kBool));
}

DistTensor where(const DistTensor& condition, const DistTensor& a,
                 const DistTensor& b) {
  DType t = promote(a.dtype(), b.dtype());
  DistTensor all[] = {cast(condition, DType::kBool), cast(a, t), cast(b, t)};
  return apply1(where_op(), all);
}

DistTensor cast(const DistTensor& x, DType t) {
  if (x.dtype() == t) return x;
  return apply1(cast_op(x.dtype(), t), {&x, 1}, CastArgs{t});
}

DistTensor neg(const DistTensor& x) { return unary_of<fn::Neg>(x); }
DistTensor abs(const DistTensor& x) { return unary_of<fn::Abs>(x); }
DistTensor exp(const DistTensor& x) { return unary_of<fn::Exp>(x); }
DistTensor log(const DistTensor& x) { return unary_of<fn::Log>(x); }
DistTensor sqrt(const DistTensor& x) { return unary_of<fn::Sqrt>(x); }
DistTensor rsqrt(const DistTensor& x) { return unary_of<fn::Rsqrt>(x); }
DistTensor square(const DistTensor& x) { return unary_of<fn::Square>(x); }
DistTensor sin(const DistTensor& x) { return unary_of<fn::Sin>(x); }
DistTensor cos(const DistTensor& x) { return unary_of<fn::Cos>(x); }
DistTensor tanh(const DistTensor& x) { return unary_of<fn::Tanh>(x); }
DistTensor sigmoid(const DistTensor& x) { return unary_of<fn::Sigmoid>(x); }
DistTensor relu(const DistTensor& x) { return unary_of<fn::Relu>(x); }
DistTensor gelu(const DistTensor& x) { return unary_of<fn::Gelu>(x); }
DistTensor gelu_tanh(const DistTensor& x) { return unary_of<fn::GeluTanh>(x); }
DistTensor silu(const DistTensor& x) { return unary_of<fn::Silu>(x); }
DistTensor clamp(const DistTensor& x, double lo, double hi) {
  DT_CHECK(lo <= hi, "clamp", "the lower bound {} is above the upper one, {}",
           lo, hi);
  return unary_of<fn::Clamp>(x, {lo, hi});
}

DistTensor unary(std::string_view function, const DistTensor& x) {
  for (int i = 0; i < fn::kNumUnary; ++i)
    if (fn::name_of(i) == function && fn::num_params_of(i) == 0) {
      DistTensor f = is_float(x.dtype()) ? x : cast(x, DType::kF32);
      return apply1(unary_op(i, 0), {&f, 1});
    }
  fail("unary", "there is no function '{}' of one argument", function);
}

}  // namespace dtensor
