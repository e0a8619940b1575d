#include "dtensor/ops/norm.h"

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"

namespace dtensor {
namespace {

struct NormArgs {
  static constexpr Fields kFields = {value("eps")};
  double eps;
};

// RMS norm is layer norm without the mean and beta: the classes below are both,
// and `layer` says which.
kernels::Norm arguments(const Rows& x, const Tensor& gamma,
                        const Tensor* beta) {
  kernels::Norm a;
  a.rows = x.rows;
  a.n = x.n;
  a.x = x.data();
  a.x_stride = x.stride;
  a.gamma = gamma.data();
  a.beta = beta ? beta->data() : nullptr;
  return a;
}

using Values = SampleInput::Values;
const Shape kSampleShapes[] = {{3, 5}, {5, 3, 7}, {7}, {5, 1}, {1, 4}};

Shape batch_of(Shape x) {
  x.pop_back();
  return x;
}

// x, gamma, [mean], rstd, dy -> dx, dgamma, [dbeta].
class NormBackward : public RuleOp {
 public:
  explicit NormBackward(bool layer)
      : RuleOp(layer ? "layer_norm_backward" : "rms_norm_backward",
               layer ? "...n~,n,...,...,...n->...n,n,n | linear 4"
                     : "...n~,n,...,...n->...n,n | linear 3",
               {.differentiable = false}),
        layer_(layer) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    check_rows(name(), shapes, 2);
    return RuleOp::bind(shapes, attrs);
  }
  // The parameters' gradients are sums over many rows: of halves in f32.
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), std::vector{in[0], in[1], in.back()});
    std::vector<DType> out(layer_ ? 3 : 2, kernels::stat_of(in[0]));
    out[0] = in[0];
    return out;
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const Shape& x : kSampleShapes) {
      Sample s;
      s.inputs = {{x}, {{x.back()}}};
      if (layer_) s.inputs.push_back({batch_of(x)});
      s.inputs.push_back({batch_of(x), Values::kPositive});
      s.inputs.push_back({x});
      s.attrs = NormArgs{1e-5};
      list.push_back(s);
    }
    return list;
  }

  void compute(Compute& c) const override {
    const DType t = c.in[0].dtype(), stat = kernels::stat_of(t);
    const AxisMask axes = c.axes_of('n');
    const Rows x(c.in[0]), dy(c.in.back());
    const Tensor gamma = c.in[1].to_contiguous();
    const Tensor mean = layer_ ? c.in[2].to_contiguous() : Tensor();
    const Tensor rstd = c.in[layer_ ? 3 : 2].to_contiguous();
    const void* mean_data = layer_ ? mean.data() : nullptr;
    void* dbeta = layer_ ? c.out[2].mutable_data() : nullptr;
    const kernels::Norm a = arguments(x, gamma, nullptr);
    if (!axes) {
      c.k.norm_backward(c.stream, t, a, mean_data, rstd.data(), dy.data(),
                        dy.stride, c.out[0].mutable_data(),
                        c.out[1].mutable_data(), dbeta);
      return;
    }
    // Two sums per row of the whole row, in one message.
    Tensor sums = c.scratch({layer_ ? 2 : 1, x.rows}, stat);
    const Tensor s2 = sums.slice(0, layer_ ? 1 : 0, layer_ ? 2 : 1);
    void* s1 = layer_ ? sums.mutable_data() : nullptr;
    c.k.norm_backward_rows(c.stream, t, a, mean_data, rstd.data(), dy.data(),
                           dy.stride, s1, s2.mutable_data());
    c.reduce_rows(sums, 'n', ReduceOp::kSum, layer_ ? 2 : 1);
    const double inv_n = 1.0 / static_cast<double>(c.global_size('n'));
    c.k.norm_backward_params(c.stream, t, a, mean_data, rstd.data(), dy.data(),
                             dy.stride, c.out[1].mutable_data(), dbeta);
    c.k.norm_backward_apply(c.stream, t, a, mean_data, rstd.data(), dy.data(),
                            dy.stride, s1, s2.data(), inv_n,
                            c.out[0].mutable_data());
  }

 private:
  bool layer_;
};

const Op& backward_op(bool layer) {
  static const NormBackward with_mean(true), without(false);
  return layer ? with_mean : without;
}

// x, gamma, [beta] -> y and what the gradient needs: [mean], rstd.
class Norm : public RuleOp {
 public:
  explicit Norm(bool layer)
      : RuleOp(layer ? "layer_norm" : "rms_norm",
               layer ? "...n~,n,n->...n,...,..." : "...n~,n->...n,...",
               {.saves_outputs = true}),
        layer_(layer) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_one_type(name(), in);
    std::vector<DType> out(layer_ ? 3 : 2, kernels::stat_of(in[0]));
    out[0] = in[0];
    return out;
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const Shape& x : kSampleShapes) {
      Sample s;
      s.inputs = {{x}, {{x.back()}}};
      if (layer_) s.inputs.push_back({{x.back()}});
      s.attrs = NormArgs{1e-2};
      list.push_back(s);
    }
    return list;
  }

  void compute(Compute& c) const override {
    const DType t = c.in[0].dtype();
    const AxisMask axes = c.axes_of('n');
    const double eps = c.attrs.as<NormArgs>().eps;
    const Rows x(c.in[0]);
    const Tensor gamma = c.in[1].to_contiguous();
    const Tensor beta = layer_ ? c.in[2].to_contiguous() : Tensor();
    const kernels::Norm a = arguments(x, gamma, layer_ ? &beta : nullptr);
    const Tensor &rstd = c.out.back(), &mean = c.out[1];
    void* mean_data = layer_ ? mean.mutable_data() : nullptr;
    if (!axes) {
      c.k.norm_forward(c.stream, t, a, eps, mean_data, rstd.mutable_data(),
                       c.out[0].mutable_data());
      return;
    }
    // First the mean, then the squares around it: their difference from one
    // pass would cancel.
    const double inv_n = 1.0 / static_cast<double>(c.global_size('n'));
    if (layer_) {
      c.k.row_sum(c.stream, t, x.rows, x.n, x.data(), x.stride,
                  mean.mutable_data());
      c.reduce_rows(mean, 'n', ReduceOp::kSum);
      row_unary(c, fn::index_of<fn::MulScalar>, mean, mean, inv_n);
    }
    c.k.row_centered_sumsq(c.stream, t, x.rows, x.n, x.data(), x.stride,
                           mean_data, rstd.mutable_data());
    c.reduce_rows(rstd, 'n', ReduceOp::kSum);
    row_unary(c, fn::index_of<fn::MulScalar>, rstd, rstd, inv_n);
    row_unary(c, fn::index_of<fn::AddScalar>, rstd, rstd, eps);
    row_unary(c, fn::index_of<fn::Rsqrt>, rstd, rstd);
    c.k.norm_apply(c.stream, t, a, mean_data, rstd.data(),
                   c.out[0].mutable_data());
  }

  std::vector<DistTensor> gradient(const GradientCall& c) const override {
    check_first_only(c);
    const DistTensor &x = c.inputs[0], &gamma = c.inputs[1];
    const DistTensor& dy = c.cotangents[0];
    std::vector<DistTensor> back;
    if (grad_enabled()) {
      back = composed(x, gamma, dy, c.attrs.as<NormArgs>().eps);
    } else {
      std::vector<DistTensor> in{x, gamma};
      in.insert(in.end(), c.outputs.begin() + 1, c.outputs.end());
      in.push_back(dy);
      const Assignment a = inherited(c);
      back = apply(backward_op(layer_), in, c.attrs, &a);
    }
    for (DistTensor& g : back)
      if (g.dtype() != x.dtype()) g = cast(g, x.dtype());
    return back;
  }

 private:
  // The gradients from operators that have gradients themselves.
  std::vector<DistTensor> composed(DistTensor x, DistTensor gamma,
                                   DistTensor dy, double eps) const {
    const DType stat = kernels::stat_of(x.dtype());
    for (DistTensor* t : {&x, &gamma, &dy})
      if (t->dtype() != stat) *t = cast(*t, stat);
    if (layer_) x = x - mean(x, {-1}, true);
    const DistTensor rstd = rsqrt(mean(square(x), {-1}, true) + eps);
    const DistTensor xhat = x * rstd, g = dy * gamma;
    DistTensor dx = g - xhat * mean(xhat * g, {-1}, true);
    if (layer_) dx = dx - mean(g, {-1}, true);
    std::vector<DistTensor> back{dx * rstd, sum_to(dy * xhat, gamma.shape())};
    if (layer_) back.push_back(sum_to(dy, gamma.shape()));
    return back;
  }

  bool layer_;
};

const Op& forward_op(bool layer) {
  static const Norm with_mean(true), without(false);
  return layer ? with_mean : without;
}

}  // namespace

DistTensor layer_norm(const DistTensor& x, const DistTensor& gamma,
                      const DistTensor& beta, double eps) {
  return apply(forward_op(true), std::vector{x, gamma, beta}, NormArgs{eps})[0];
}

DistTensor rms_norm(const DistTensor& x, const DistTensor& gamma, double eps) {
  return apply(forward_op(false), std::vector{x, gamma}, NormArgs{eps})[0];
}

std::vector<const Op*> norm_ops() {
  return {&forward_op(true), &forward_op(false), &backward_op(true),
          &backward_op(false)};
}

}  // namespace dtensor
