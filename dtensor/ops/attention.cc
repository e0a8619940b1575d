#include "dtensor/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/random.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/softmax.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Values = SampleInput::Values;

struct AttentionArgs {
  static constexpr Fields kFields = {"causal", value("scale")};
  bool causal;
  double scale;
};
struct RotaryArgs {
  static constexpr Fields kFields = {value("offset"), "inverse",
                                     value("theta")};
  int64_t offset;
  bool inverse;
  double theta;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Stands for minus infinity where that would give NaN.
constexpr double kLowest = -1e30;

// The mask's term: the letters of its dimensions aligned with [b, h, s, t] at
// the right, and 1 where it is repeated.
std::string mask_term(const Shape& mask, const Shape& scores) {
  DT_CHECK(mask.size() <= 4, "attention",
           "a mask of shape {} does not broadcast to [b, h, s, t] = {}",
           to_string(mask), to_string(scores));
  std::string term;
  for (int d = 0; d < mask.size(); ++d) {
    const int at = d + 4 - mask.size();
    DT_CHECK(mask[d] == 1 || mask[d] == scores[at], "attention",
             "a mask of shape {} does not broadcast to [b, h, s, t] = {}",
             to_string(mask), to_string(scores));
    term += mask[d] == 1 && scores[at] != 1 ? '1' : "bhst"[at];
  }
  return term;
}

// The rule for q, k, v and, of the gradient, out, lse, dout; and a mask, if
// there is one more shape.
BoundRule attention_rule(std::string_view op, const std::vector<Shape>& shapes,
                         bool backward) {
  const size_t fixed = backward ? 6 : 3;
  const Shape &q = shapes[0], &k = shapes[1];
  DT_CHECK(
      q.size() == 4 && k.size() == 4, op,
      "q has shape {} and k {}; write [b, s, heads, d] and [b, t, kv_heads, "
      "d]",
      to_string(q), to_string(k));
  DT_CHECK(k[2] > 0 && q[2] % k[2] == 0, op,
           "{} query heads share {} heads of k and v; write a multiple", q[2],
           k[2]);
  std::string rule = "bs^hd!,bt!gd,btgd";
  if (backward) rule += ",bshd,bhs,bshd";
  if (shapes.size() > fixed)
    rule += "," + mask_term(shapes[fixed], {q[0], q[2], q[1], k[1]});
  rule += backward ? "->bshd,btgd,btgd | linear 5; " : "->bshd,bhs | ";
  return BoundRule(Rule(rule + "link h g"), shapes, op);
}

Tensor with_unit_rows(const Tensor& x) {
  return x.shape().back() > 1 && x.strides().back() != 1 ? x.to_contiguous()
                                                         : x;
}

// Of a local [b, s, h, d], in the kernel's order [b, h, s, d].
void set_strides(const Tensor& x, int64_t (&strides)[4]) {
  const int order[] = {0, 2, 1, 3};
  for (int i = 0; i < 4; ++i) strides[i] = x.strides()[order[i]];
}

// The operands of one call: this rank's query heads, and the heads of k and v
// that they use.
class Operands {
 public:
  Operands(Compute& c, size_t fixed)
      : c_(c),
        heads_(c.global_size('h')),
        kv_heads_(c.global_size('g')),
        q_(with_unit_rows(c.in[0])),
        k_(fetched(c.in[1])),
        v_(fetched(c.in[2])) {
    const IntervalList rows = c.ranges_of('s');
    a_.b = q_.shape()[0];
    a_.s = q_.shape()[1];
    a_.hq = q_.shape()[2];
    a_.d = q_.shape()[3];
    a_.t = k_.shape()[1];
    a_.hkv = k_.shape()[2];
    a_.q = q_.data();
    a_.k = k_.data();
    a_.v = v_.data();
    set_strides(q_, a_.q_strides);
    set_strides(k_, a_.k_strides);
    set_strides(v_, a_.v_strides);
    a_.scale = c.attrs.as<AttentionArgs>().scale;
    a_.causal = c.attrs.as<AttentionArgs>().causal;
    a_.query_offset = rows.empty() ? 0 : rows[0].lo;
    // Which local head of k and v each local query head uses.
    const IntervalList held = local_kv_heads(c.coord());
    for (const Interval& range : c.ranges_of('h'))
      for (int64_t h = range.lo; h < range.hi; ++h) {
        int64_t g = h * kv_heads_ / heads_, at = 0;
        for (const Interval& have : held) {
          if (g < have.hi) {
            at += g - have.lo;
            break;
          }
          at += have.size();
        }
        kv_head_.push_back(static_cast<int>(at));
      }
    a_.kv_head = kv_head_.data();
    if (c.in.size() <= fixed) return;
    mask_ = c.in[fixed];
    a_.mask = mask_.data();
    a_.mask_is_bool = mask_.dtype() == DType::kBool;
    const int missing = 4 - mask_.ndim();
    for (int d = 0; d < mask_.ndim(); ++d)
      a_.mask_strides[d + missing] =
          mask_.shape()[d] == 1 ? 0 : mask_.strides()[d];
  }

  const kernels::Attention& kernel() const { return a_; }
  const Tensor& k() const { return k_; }

  // A gradient of the heads that were used, as one of those that this rank
  // holds. REQUIRES: g is split.
  Tensor returned(const Tensor& dk) {
    return c_.collect_sum(
        dk, c_.axes_of('g'), [this](const Coord& at) { return used(at); },
        [this](const Coord& at) { return held(at); });
  }

 private:
  Region held(const Coord& at) const { return c_.decision.in[1]->region(at); }
  Region used(const Coord& at) const {
    Region r = held(at);
    r[2] = used_kv_heads(at);
    return r;
  }
  // What the query heads of the rank at `at` name: query head i uses head
  // floor(i kv_heads / heads).
  IntervalList used_kv_heads(const Coord& at) const {
    IntervalList list;
    const Region queries = c_.decision.in[0]->region(at);
    for (const Interval& h : queries[2]) {
      const int64_t lo = h.lo * kv_heads_ / heads_;
      const int64_t hi = (h.hi - 1) * kv_heads_ / heads_ + 1;
      if (!list.empty() && lo <= list.back().hi)
        list.back().hi = hi;
      else
        list.push_back({lo, hi});
    }
    return list;
  }
  // The heads of k_ and v_.
  IntervalList local_kv_heads(const Coord& at) const {
    return c_.axes_of('g') ? used_kv_heads(at) : held(at)[2];
  }
  Tensor fetched(const Tensor& x) {
    const AxisMask axes = c_.axes_of('g');
    if (!axes) return with_unit_rows(x);
    return with_unit_rows(c_.fetch(
        x, axes, [this](const Coord& at) { return held(at); },
        [this](const Coord& at) { return used(at); }));
  }

  Compute& c_;
  int64_t heads_, kv_heads_;
  Tensor q_, k_, v_, mask_;
  std::vector<int> kv_head_;
  kernels::Attention a_;
};

void check_dtypes(std::string_view op, std::span<const DType> in,
                  size_t fixed) {
  check_one_type(op, std::vector{in[0], in[1], in[2]});
  DT_CHECK(
      in.size() <= fixed || in[fixed] == DType::kBool || in[fixed] == in[0], op,
      "q is {} and the mask is {}; write a mask of bool or {}", name(in[0]),
      name(in[fixed]), name(in[0]));
}

struct SampleShape {
  int64_t b, s, t, h, g, d;
  bool causal;
  Shape mask;  // empty: none
  Values mask_values = Values::kAny;
};

std::vector<Sample> attention_samples(bool backward) {
  std::vector<Sample> list;
  const SampleShape shapes[] = {
      {2, 3, 5, 6, 2, 4, false, {}},
      {1, 5, 5, 3, 3, 2, true, {}},
      {3, 4, 3, 4, 1, 3, true, {}},
      {1, 1, 1, 1, 1, 1, false, {}},
      {2, 3, 5, 6, 2, 4, false, {3, 5}, Values::kAny},
      {2, 3, 4, 6, 3, 2, false, {2, 1, 1, 4}, Values::kAny},
      {2, 3, 4, 6, 3, 2, true, {6, 3, 4}, Values::kBool},
  };
  for (const SampleShape& x : shapes) {
    const Shape q{x.b, x.s, x.h, x.d}, k{x.b, x.t, x.g, x.d};
    Sample s;
    s.inputs = {{q}, {k}, {k}};
    if (backward)
      s.inputs.insert(s.inputs.end(), {{q}, {{x.b, x.h, x.s}}, {q}});
    if (!x.mask.empty()) s.inputs.push_back({x.mask, x.mask_values});
    s.attrs = AttentionArgs{x.causal, 0.7};
    list.push_back(s);
  }
  return list;
}

// q, k, v, out, lse, dout, [mask] -> dq, dk, dv.
class AttentionBackward : public Op {
 public:
  AttentionBackward() : Op("attention_backward") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return attention_rule(name(), shapes, true);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_dtypes(name(), in, 6);
    check_one_type(name(), std::vector{in[0], in[3], in[5]});
    return {in[0], in[0], in[0]};
  }
  // Per point: five products, of which a multiplication and an addition each.
  OpWork work() const override { return {10}; }
  std::vector<Sample> samples() const override {
    return attention_samples(true);
  }
  bool differentiable() const override { return false; }

  void compute(Compute& c) const override {
    Operands operands(c, 6);
    const Tensor out = with_unit_rows(c.in[3]), lse = c.in[4].to_contiguous(),
                 dout = with_unit_rows(c.in[5]);
    // Of the heads that were used, which are others than those that this rank
    // holds where g is split.
    const bool apart = c.axes_of('g') != 0;
    auto like_k = [&](const Tensor& result) {
      return apart ? c.scratch(operands.k().shape(), result.dtype()) : result;
    };
    const Tensor dk = like_k(c.out[1]), dv = like_k(c.out[2]);
    kernels::AttentionGrad g;
    g.out = out.data();
    g.dout = dout.data();
    g.lse = lse.data();
    g.dq = c.out[0].mutable_data();
    g.dk = dk.mutable_data();
    g.dv = dv.mutable_data();
    set_strides(out, g.out_strides);
    set_strides(dout, g.dout_strides);
    set_strides(c.out[0], g.dq_strides);
    set_strides(dk, g.dk_strides);
    set_strides(dv, g.dv_strides);
    c.k.attention_backward(c.stream, c.in[0].dtype(), operands.kernel(), g);
    if (!apart) return;
    c.out[1] = operands.returned(dk);
    c.out[2] = operands.returned(dv);
  }
};

const Op& backward_op() {
  static const AttentionBackward op;
  return op;
}

// q, k, v, [mask] -> out and, for the gradient, the log of each query's sum of
// exponentials.
class AttentionOp : public Op {
 public:
  AttentionOp() : Op("attention") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return attention_rule(name(), shapes, false);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_dtypes(name(), in, 3);
    return {in[0], kernels::stat_of(in[0])};
  }
  OpWork work() const override { return {4}; }
  std::vector<Sample> samples() const override {
    return attention_samples(false);
  }
  bool saves_outputs() const override { return true; }

  void compute(Compute& c) const override {
    const Operands operands(c, 3);
    int64_t strides[4];
    set_strides(c.out[0], strides);
    c.k.attention(c.stream, c.in[0].dtype(), operands.kernel(),
                  c.out[0].mutable_data(), strides, c.out[1].mutable_data());
  }

  std::vector<DistTensor> gradient(const GradientCall& c) const override {
    check_first_only(c);
    const bool masked = c.inputs.size() > 3;
    // The kernel has no gradient of the mask.
    if (grad_enabled() || (masked && c.needed[3])) return composed(c);
    std::vector<DistTensor> in(c.inputs.begin(), c.inputs.begin() + 3);
    in.insert(in.end(), {c.outputs[0], c.outputs[1], c.cotangents[0]});
    if (masked) in.push_back(c.inputs[3]);
    const Assignment a = inherited(c);
    std::vector<DistTensor> back = apply(backward_op(), in, c.attrs, &a);
    back.resize(c.inputs.size());
    return back;
  }

 private:
  static std::vector<DistTensor> composed(const GradientCall& c);
};

// Which scores of [b, g, r, s, t] count, and what is added to them.
struct Masks {
  DistTensor allowed, added;
};

Masks masks_of(const GradientCall& c, const Shape& grouped, DType stat) {
  const DistTensor& q = c.inputs[0];
  const int64_t s = grouped[3], t = grouped[4];
  Masks m;
  if (c.attrs.as<AttentionArgs>().causal)
    m.allowed = le(unsqueeze(arange(t, q.mesh()), 0),
                   unsqueeze(arange(s, q.mesh()), 1));
  if (c.inputs.size() < 4) return m;
  DistTensor mask = c.inputs[3];
  Shape shape = mask.shape();
  if (shape.size() >= 3) {  // heads become groups and the heads of each
    const int at = shape.size() - 3;
    const bool whole = shape[at] == grouped[1] * grouped[2];
    shape.insert(at + 1, whole ? grouped[2] : 1);
    if (whole) shape[at] = grouped[1];
    mask = reshape(mask, shape);
  }
  DistTensor may = mask;
  if (mask.dtype() != DType::kBool) {
    if (mask.dtype() != stat) mask = cast(mask, stat);
    // An infinite one forbids: 0 times infinity has no gradient.
    may = gt(mask, full({}, -kInfinity, q.mesh(), {}, stat));
    m.added = where(may, mask, full({}, 0, q.mesh(), {}, stat));
  }
  m.allowed = m.allowed.defined() ? logical_and(m.allowed, may) : may;
  return m;
}

// The gradients from operators that have gradients themselves, with the heads
// as [kv heads, heads of each].
std::vector<DistTensor> AttentionOp::composed(const GradientCall& c) {
  const DType type = c.inputs[0].dtype(), stat = kernels::stat_of(type);
  const Shape qs = c.inputs[0].shape(), ks = c.inputs[1].shape();
  const double scale = c.attrs.as<AttentionArgs>().scale;
  const Shape split_heads{qs[0], qs[1], ks[2], qs[2] / ks[2], qs[3]};
  auto wide = [&](const DistTensor& x) {
    return x.dtype() == stat ? x : cast(x, stat);
  };
  const DistTensor q = reshape(wide(c.inputs[0]), split_heads);
  const DistTensor k = wide(c.inputs[1]), v = wide(c.inputs[2]);
  const DistTensor dout = reshape(wide(c.cotangents[0]), split_heads);
  const Masks mask =
      masks_of(c, {qs[0], ks[2], qs[2] / ks[2], qs[1], ks[1]}, stat);

  DistTensor score = einsum("bsgrd,btgd->bgrst", {q, k}) * scale;
  if (mask.added.defined()) score = score + mask.added;
  // Finite, and 0 afterwards: a query that may attend to nothing gives zeros.
  auto forbid = [&](const DistTensor& x, double value) {
    if (!mask.allowed.defined()) return x;
    return where(mask.allowed, x, full({}, value, x.mesh(), {}, stat));
  };
  const DistTensor p = forbid(softmax(forbid(score, kLowest), -1), 0);
  const DistTensor dp = einsum("bsgrd,btgd->bgrst", {dout, v});
  const DistTensor ds = p * (dp - sum(p * dp, {-1}, true));
  std::vector<DistTensor> back{
      reshape(einsum("bgrst,btgd->bsgrd", {ds, k}) * scale, qs),
      einsum("bgrst,bsgrd->btgd", {ds, q}) * scale,
      einsum("bgrst,bsgrd->btgd", {p, dout})};
  for (DistTensor& g : back)
    if (g.dtype() != type) g = cast(g, type);
  if (c.inputs.size() < 4) return back;
  back.emplace_back();
  if (!c.needed[3]) return back;
  DistTensor d =
      sum_to(reshape(ds, {qs[0], qs[2], qs[1], ks[1]}), c.inputs[3].shape());
  if (d.dtype() != type) d = cast(d, type);
  back.back() = d;
  return back;
}

const Op& attention_op() {
  static const AttentionOp op;
  return op;
}

class RotaryOp : public RuleOp {
 public:
  RotaryOp()
      : RuleOp("rotary", "bs^hd!->bshd | linear 0", {.saves_inputs = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    DT_CHECK(shapes[0].size() == 4 && shapes[0][3] % 2 == 0, name(),
             "x has shape {}; write [b, s, heads, d] with an even d",
             to_string(shapes[0]));
    return RuleOp::bind(shapes, attrs);
  }
  std::vector<Sample> samples() const override {
    return {{{{{2, 5, 3, 4}}}, RotaryArgs{0, false, 100}, true},
            {{{{3, 7, 1, 2}}}, RotaryArgs{3, true, 100}, true},
            {{{{1, 1, 5, 6}}}, RotaryArgs{11, false, 10000}, true}};
  }
  void compute(Compute& c) const override {
    const Tensor x = with_unit_rows(c.in[0]);
    const IntervalList rows = c.ranges_of('s');
    kernels::Rotary a;
    a.b = x.shape()[0];
    a.s = x.shape()[1];
    a.h = x.shape()[2];
    a.d = x.shape()[3];
    a.x = x.data();
    a.out = c.out[0].mutable_data();
    set_strides(x, a.x_strides);
    set_strides(c.out[0], a.out_strides);
    const RotaryArgs& args = c.attrs.as<RotaryArgs>();
    a.theta = args.theta;
    a.position_offset = args.offset + (rows.empty() ? 0 : rows[0].lo);
    a.inverse = args.inverse;
    c.k.rotary(c.stream, x.dtype(), a);
  }

  // Rotating back.
  std::vector<DistTensor> gradient(const GradientCall& c) const override {
    RotaryArgs args = c.attrs.as<RotaryArgs>();
    args.inverse = !args.inverse;
    const Assignment a = inherited(c);
    return {apply1(*this, c.cotangents, args, &a)};
  }
};

const Op& rotary_op() {
  static const RotaryOp op;
  return op;
}

}  // namespace

DistTensor attention(const DistTensor& q, const DistTensor& k,
                     const DistTensor& v, const AttentionOptions& options,
                     const DistTensor& mask) {
  double scale = options.scale;
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  std::vector<DistTensor> in{q, k, v};
  if (mask.defined()) in.push_back(mask);
  return apply(attention_op(), in, AttentionArgs{options.causal, scale})[0];
}

DistTensor rotary(const DistTensor& x, double theta, int64_t offset) {
  return apply1(rotary_op(), {&x, 1}, RotaryArgs{offset, false, theta});
}

std::vector<const Op*> attention_ops() {
  return {&attention_op(), &backward_op(), &rotary_op()};
}

}  // namespace dtensor
