// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/norm.h"

#include <algorithm>
#include <functional>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

struct NormArgs {
  static constexpr Fields kFields = {value("eps")};
  double eps;
};

// The operand of the norm.
enum class Of {
  kInput,
  kThrough,  // the input, which is also an output
  kSum,      // the sum of two inputs, which is also an output
};

// RMS norm is layer norm without mean and beta, so the classes below do both;
// `layer` says which.
kernels::Norm arguments(const Rows& x, const Tensor& gamma,
                        const Tensor* beta) {
  return {.x = x, .gamma = gamma.data(), .beta = beta ? beta->data() : nullptr};
}

using Values = SampleInput::Values;
const Shape kSampleShapes[] = {{3, 5}, {5, 3, 7}, {7}, {5, 1}, {1, 4}};

Shape batch_of(Shape x) {
  x.pop_back();
  return x;
}

// The gradients that a backward pass returns: all as floats, dgamma and dbeta
// as exact sums, or only dx.
enum class Returns { kAll, kExact, kInput };

// x, gamma, [mean], rstd, dy, [more] -> dx, dgamma, [dbeta]. `more` is the
// cotangent of x from its other uses, which is added to dx.
class NormBackward : public RuleOp {
 public:
  NormBackward(bool layer, bool more, Returns returns)
      : RuleOp(std::string(layer ? "layer_norm" : "rms_norm") + "_backward" +
                   (more ? "_add" : "") +
                   (returns == Returns::kInput ? "_input" : ""),
               std::string("...n~,n,...") + (layer ? ",..." : "") + ",...n" +
                   (more ? ",...n" : "") + "->...n" +
                   (returns == Returns::kInput ? ""
                    : layer                    ? ",n,n"
                                               : ",n") +
                   " | linear " + (layer ? "4" : "3") +
                   (!more   ? ""
                    : layer ? ",5"
                            : ",4"),
               {.differentiable = false, .sums = OpFacts::Sums::kInside}),
        layer_(layer),
        more_(more),
        returns_(returns) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    check_rows(name(), shapes, 2);
    return RuleOp::bind(shapes, attrs);
  }
  // The gradients of gamma and beta sum many rows, so they are f32 for half
  // types.
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    std::vector<DType> types(in.begin(), in.end());
    std::fill(&types[2], &types[dy()], in[0]);  // leaves out the statistics
    check_one_type(name(), types);
    std::vector<DType> out{in[0]};
    if (returns_ != Returns::kInput)
      out.resize(layer_ ? 3 : 2, returns_ == Returns::kExact
                                     ? DType::kExact
                                     : kernels::stat_of(in[0]));
    return out;
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const Shape& x : kSampleShapes) {
      Sample s;
      s.inputs = {{x}, {{x.back()}}};
      if (layer_) s.inputs.push_back({batch_of(x)});
      s.inputs.push_back({batch_of(x), Values::kPositive});
      for (int i = 0; i < (more_ ? 2 : 1); ++i) s.inputs.push_back({x});
      s.attrs = NormArgs{1e-5};
      list.push_back(s);
    }
    return list;
  }

  void compute(Compute& c) const override {
    const AxisMask axes = c.axes_of('n');
    const Rows x(c.in[0]), dy(c.in[this->dy()]),
        more(more_ ? c.in[c.in.size() - 1] : x.t);
    const Tensor gamma = c.in[1].to_contiguous();
    const Tensor mean = layer_ ? c.in[2].to_contiguous() : Tensor();
    const Tensor rstd = c.in[this->dy() - 1].to_contiguous();
    kernels::Norm a = arguments(x, gamma, nullptr);
    if (layer_) a.mean = mean.data();
    a.rstd = rstd.data();
    a.dy = dy;
    a.by_leaves = c.context.reproducible;
    if (more_) a.dsum = more;
    void* const dx = c.out[0].mutable_data();
    const auto parameter = [&](size_t i) {
      return i < c.out.size() ? c.out[i].mutable_data() : nullptr;
    };
    const kernels::NormBackward whole{.of = a,
                                      .exact = returns_ == Returns::kExact,
                                      .dx = axes ? nullptr : dx,
                                      .dgamma = parameter(1),
                                      .dbeta = parameter(2)};
    if (!axes) return c.run(whole);
    // Two sums over whole rows (one for RMS norm), in one message.
    Tensor sums =
        c.scratch({layer_ ? 2 : 1, x.rows}, kernels::stat_of(x.t.dtype()));
    const Tensor s2 = sums.slice(0, layer_ ? 1 : 0, layer_ ? 2 : 1);
    void* s1 = layer_ ? sums.mutable_data() : nullptr;
    c.run(
        kernels::NormBackwardSums{.of = a, .s1 = s1, .s2 = s2.mutable_data()});
    c.reduce_rows(sums, 'n', ReduceOp::kSum, layer_ ? 2 : 1);
    const double inv_n = 1.0 / static_cast<double>(c.global_size('n'));
    if (whole.dgamma) c.run(whole);
    c.run(kernels::NormBackwardApply{
        .of = a, .s1 = s1, .s2 = s2.data(), .inv_n = inv_n, .dx = dx});
  }

 private:
  size_t dy() const { return layer_ ? 4 : 3; }  // its index in the inputs

  bool layer_, more_;
  Returns returns_;
};

const Op& backward_op(bool layer, bool more, Returns returns) {
  using enum Returns;
  static const NormBackward ops[] = {
      {false, false, kAll},  {false, true, kAll},    {true, false, kAll},
      {true, true, kAll},    {false, false, kExact}, {false, true, kExact},
      {true, false, kExact}, {true, true, kExact},   {false, false, kInput},
      {false, true, kInput}, {true, false, kInput},  {true, true, kInput}};
  return ops[4 * static_cast<size_t>(returns) + 2 * layer + more];
}

std::string name_of(bool layer, Of of) {
  return std::string(of == Of::kSum ? "add_" : "") +
         (layer ? "layer_norm" : "rms_norm") +
         (of == Of::kThrough ? "_through" : "");
}

// A bit for each input that the gradient needs. If the x that was normalized is
// also an output, the gradient takes it from there, and needs only the
// parameters.
uint32_t saved_inputs(Of of) {
  return of == Of::kInput ? OpFacts::kAll : ~(of == Of::kSum ? 3u : 1u);
}

std::string rule_of(bool layer, Of of) {
  return std::string(of == Of::kSum ? "...n~,...n" : "...n~") +
         (layer ? ",n,n" : ",n") +
         (of == Of::kInput ? "->...n" : "->...n,...n") +
         (layer ? ",...,..." : ",...");
}

// x, [residual], gamma, [beta] -> y, [the x that was normalized]; and for the
// gradient: [mean], rstd
class Norm : public RuleOp {
 public:
  Norm(bool layer, Of of)
      : RuleOp(name_of(layer, of), rule_of(layer, of),
               {.saved_inputs = saved_inputs(of),
                .saves_outputs = true,
                .allocates = of != Of::kThrough,
                .sums = OpFacts::Sums::kInside}),
        layer_(layer),
        of_(of) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    DT_CHECK(
        of_ != Of::kSum || shapes[0] == shapes[1], name(),
        "adds {} and {}, which it does not broadcast; pass both in one shape",
        to_string(shapes[0]), to_string(shapes[1]));
    return RuleOp::bind(shapes, attrs);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in);
    std::vector<DType> out(statistics() + (layer_ ? 2 : 1),
                           kernels::stat_of(in[0]));
    std::fill_n(out.begin(), statistics(), in[0]);
    return out;
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const Shape& x : kSampleShapes) {
      Sample s;
      for (size_t i = 0; i < gamma(); ++i) s.inputs.push_back({x});
      for (int i = 0; i < (layer_ ? 2 : 1); ++i)
        s.inputs.push_back({{x.back()}});
      s.attrs = NormArgs{1e-2};
      list.push_back(s);
    }
    return list;
  }

  void compute(Compute& c) const override {
    if (!facts().allocates)
      for (size_t o = 0; o < c.out.size(); ++o)
        c.out[o] = o == 1 ? c.in[0]
                          : Tensor::empty(c.decision.out_local[o],
                                          c.decision.out[o]->dtype());
    const AxisMask axes = c.axes_of('n');
    const double eps = c.attrs.as<NormArgs>().eps;
    // If rows are split, the sum of both inputs is made first, in its own pass.
    const bool add_first = axes && of_ == Of::kSum;
    if (add_first)
      row_binary(c, fn::index_of<fn::Add>, c.in[0].to_contiguous(),
                 c.in[1].to_contiguous(), c.out[1]);
    const Rows x(add_first ? c.out[1] : c.in[0]),
        residual(of_ == Of::kSum && !axes ? c.in[1] : x.t);
    const Tensor g = c.in[gamma()].to_contiguous();
    const Tensor beta =
        layer_ ? c.in[c.in.size() - 1].to_contiguous() : Tensor();
    kernels::Norm a = arguments(x, g, layer_ ? &beta : nullptr);
    a.by_leaves = c.context.reproducible;
    const Tensor &rstd = c.out.back(), &mean = c.out[statistics()];
    void* mean_data = layer_ ? mean.mutable_data() : nullptr;
    if (!axes) {
      if (of_ == Of::kSum) {
        a.residual = residual;
        a.sum = c.out[1].mutable_data();
      }
      return c.run(kernels::NormForward{.of = a,
                                        .eps = eps,
                                        .mean = mean_data,
                                        .rstd = rstd.mutable_data(),
                                        .y = c.out[0].mutable_data()});
    }
    // First computes the mean, then squared distances from it. Both in one pass
    // would lose digits by cancellation.
    const double inv_n = 1.0 / static_cast<double>(c.global_size('n'));
    if (layer_) {
      c.run(kernels::RowSum{.x = x, .sum = mean.mutable_data()});
      c.reduce_rows(mean, 'n', ReduceOp::kSum);
      row_unary(c, fn::index_of<fn::MulScalar>, mean, mean, inv_n);
    }
    c.run(kernels::RowCenteredSumSquares{
        .x = x, .mean = mean_data, .sum = rstd.mutable_data()});
    c.reduce_rows(rstd, 'n', ReduceOp::kSum);
    row_unary(c, fn::index_of<fn::MulScalar>, rstd, rstd, inv_n);
    row_unary(c, fn::index_of<fn::AddScalar>, rstd, rstd, eps);
    row_unary(c, fn::index_of<fn::Rsqrt>, rstd, rstd);
    a.mean = mean_data;
    a.rstd = rstd.data();
    c.run(kernels::NormApply{.of = a, .y = c.out[0].mutable_data()});
  }

  InputGradients gradient(const GradientCall& c) const override {
    check_first_only(c, statistics());
    const bool shared = of_ != Of::kInput;
    const DistTensor& x = shared ? c.outputs[1] : c.inputs[0];
    const DistTensor& g = c.inputs[gamma()];
    const DistTensor& dy = c.cotangents[0];
    const DistTensor more = shared ? c.cotangents[1] : DistTensor();
    std::vector<DistTensor> back;
    if (!dy.defined()) {
      back.resize(layer_ ? 3 : 2);
      back[0] = more;
    } else if (grad_enabled()) {
      back = composed(x, g, dy, more, c.attrs.as<NormArgs>().eps);
    } else {
      std::vector<DistTensor> in{x, g};
      in.insert(in.end(), c.outputs.begin() + statistics(), c.outputs.end());
      in.push_back(dy);
      if (more.defined()) in.push_back(more);
      const Assignment a = inherited(c);
      const bool only_x = std::none_of(c.needed.begin() + gamma(),
                                       c.needed.end(), std::identity());
      const Returns returns = only_x                      ? Returns::kInput
                              : has_exact_sums(x.dtype()) ? Returns::kExact
                                                          : Returns::kAll;
      back =
          apply(backward_op(layer_, more.defined(), returns), in, c.attrs, &a);
      back.resize(layer_ ? 3 : 2);
    }
    for (DistTensor& d : back)
      if (d.defined() && is_float(d.dtype()) && d.dtype() != x.dtype())
        d = cast(d, x.dtype());
    if (of_ == Of::kSum) back.insert(back.begin(), DistTensor(back[0]));
    return back;
  }

 private:
  // The index of the first parameter among the inputs, and of the first
  // statistic among the outputs.
  size_t gamma() const { return of_ == Of::kSum ? 2 : 1; }
  size_t statistics() const { return of_ == Of::kInput ? 1 : 2; }

  // Computes the gradients with differentiable operators.
  std::vector<DistTensor> composed(DistTensor x, DistTensor gamma,
                                   DistTensor dy, DistTensor more,
                                   double eps) const {
    const DType stat = kernels::stat_of(x.dtype());
    for (DistTensor* t : {&x, &gamma, &dy, &more})
      if (t->defined() && t->dtype() != stat) *t = cast(*t, stat);
    if (layer_) x = x - mean(x, {-1}, true);
    const DistTensor rstd = rsqrt(mean(square(x), {-1}, true) + eps);
    const DistTensor xhat = x * rstd, g = dy * gamma;
    DistTensor dx = g - xhat * mean(xhat * g, {-1}, true);
    if (layer_) dx = dx - mean(g, {-1}, true);
    dx = dx * rstd;
    if (more.defined()) dx = dx + more;
    std::vector<DistTensor> back{dx, sum_to(dy * xhat, gamma.shape())};
    if (layer_) back.push_back(sum_to(dy, gamma.shape()));
    return back;
  }

  bool layer_;
  Of of_;
};

const Op& forward_op(bool layer, Of of) {
  static const Norm ops[] = {{false, Of::kInput},   {true, Of::kInput},
                             {false, Of::kThrough}, {true, Of::kThrough},
                             {false, Of::kSum},     {true, Of::kSum}};
  return ops[2 * static_cast<size_t>(of) + layer];
}

Normed normed(bool layer, Of of, const std::vector<DistTensor>& in,
              double eps) {
  auto out = apply(forward_op(layer, of), in, NormArgs{eps});
  return {out[1], out[0]};
}

// Whether a and b are both partial. The norm would reduce each of them; their
// sum needs only one reduction.
bool both_partial(const DistTensor& a, const DistTensor& b) {
  return a.defined() && b.defined() && a.spec()->partial_axes() &&
         b.spec()->partial_axes() && a.shape() == b.shape() &&
         a.dtype() == b.dtype();
}

// w, or a constant vector if w is not given.
DistTensor weight_or(const DistTensor& w, double value, const DistTensor& x) {
  if (w.defined() || !x.defined()) return w;
  return full({x.ndim() ? x.size(-1) : 1}, value, x.mesh(), {}, x.dtype());
}

}  // namespace

DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma,
                      const DistTensor& beta, double eps) {
  return apply1(forward_op(true, Of::kInput),
                {x, weight_or(gamma, 1, x), weight_or(beta, 0, x)},
                NormArgs{eps});
}

DistTensor layer_norm(const DistTensor& x, const Shape& normalized,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps) {
  check_defined("layer_norm", x);
  const int first = x.ndim() - normalized.size();
  bool fits = first >= 0 && !normalized.empty();
  for (int d = 0; fits && d < normalized.size(); ++d)
    fits = x.size(first + d) == normalized[d];
  DT_CHECK(fits, "layer_norm",
           "{} does not end with the dimensions {}; pass its last sizes",
           x.spec()->to_string(), to_string(normalized));
  const auto flat = [](const DistTensor& w) {
    return w.defined() ? flatten(w) : w;
  };
  return reshape(layer_norm(flatten(x, first), flat(gamma), flat(beta), eps),
                 x.shape());
}

DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma, double eps) {
  return apply1(forward_op(false, Of::kInput), {x, weight_or(gamma, 1, x)},
                NormArgs{eps});
}

Normed add_layer_norm(const DistTensor& a, const DistTensor& b,
                      const DistTensor& gamma, const DistTensor& beta,
                      double eps) {
  if (both_partial(a, b)) return layer_norm_through(a + b, gamma, beta, eps);
  return normed(true, Of::kSum, {a, b, gamma, beta}, eps);
}

Normed add_rms_norm(const DistTensor& a, const DistTensor& b,
                    const DistTensor& gamma, double eps) {
  if (both_partial(a, b)) return rms_norm_through(a + b, gamma, eps);
  return normed(false, Of::kSum, {a, b, gamma}, eps);
}

Normed layer_norm_through(const DistTensor& x, const DistTensor& gamma,
                          const DistTensor& beta, double eps) {
  return normed(true, Of::kThrough, {x, gamma, beta}, eps);
}

Normed rms_norm_through(const DistTensor& x, const DistTensor& gamma,
                        double eps) {
  return normed(false, Of::kThrough, {x, gamma}, eps);
}

static const OpFamily kFamily("norm", [] {
  OpList ops;
  for (Of of : {Of::kInput, Of::kThrough, Of::kSum})
    for (bool layer : {true, false}) ops.push_back(&forward_op(layer, of));
  for (bool more : {false, true})
    for (bool layer : {true, false})
      for (Returns returns : {Returns::kAll, Returns::kInput})
        ops.push_back(&backward_op(layer, more, returns));
  return ops;
});

}  // namespace dtensor
