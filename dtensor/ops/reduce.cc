#include "dtensor/ops/reduce.h"

#include <algorithm>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime/redistribute.h"

namespace dtensor {
namespace {

struct ExtremumArgs {
  static constexpr Fields kFields = {"dims"};
  Shape dims;  // ascending; they go away
};

class Extremum : public Op {
 public:
  explicit Extremum(bool max) : Op(max ? "amax" : "amin"), max_(max) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const Shape& dims = attrs.as<ExtremumArgs>().dims;
    std::string in, out, notes = max_ ? " | max 0" : " | min 0";
    for (int d = 0; d < shapes[0].size(); ++d) {
      char c = static_cast<char>('a' + d);
      in += c;
      if (std::find(dims.begin(), dims.end(), d) == dims.end())
        out += c;
      else
        notes += fmt::format("; {}:{}", c, max_ ? "max" : "min");
    }
    return BoundRule(Rule(in + "->" + out + notes), shapes, name());
  }
  void compute(Compute& c) const override {
    uint32_t dims = 0;
    for (int64_t d : c.attrs.as<ExtremumArgs>().dims) dims |= 1u << d;
    const Tensor& x = c.in[0];
    c.k.reduce(
        c.stream, max_ ? kernels::ReduceKind::kMax : kernels::ReduceKind::kMin,
        x.dtype(), x.shape(), x.data(), x.strides(), dims, c.out[0].data());
  }
  bool saves_outputs() const override { return true; }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    const DistTensor& x = g.inputs[0];
    Shape kept = x.shape();
    std::vector<int> dims;
    for (int64_t d : g.attrs.as<ExtremumArgs>().dims) {
      kept[static_cast<int>(d)] = 1;
      dims.push_back(static_cast<int>(d));
    }
    DistTensor best = reshape(g.outputs[0].detach(), kept);
    DistTensor winners = cast(eq(x.detach(), best), x.dtype());
    DistTensor share = div(winners, sum(winners, dims, true));
    return {mul(share, reshape(g.cotangents[0], kept))};
  }
  std::vector<Sample> samples() const override {
    Sample rows, all;
    rows.inputs = {{Shape{5, 3, 2}}};
    rows.attrs = ExtremumArgs{{1}};
    all.inputs = {{Shape{5, 3}}};
    all.attrs = ExtremumArgs{{0, 1}};
    return {rows, all};
  }

 private:
  bool max_;
};

const Extremum& extremum_op(bool max) {
  static const Extremum largest(true), smallest(false);
  return max ? largest : smallest;
}

DistTensor extremum(bool max, const DistTensor& x, std::vector<int> dims,
                    bool keepdim) {
  const Op& op = extremum_op(max);
  ExtremumArgs args;
  Shape kept = x.shape();
  for (int d = 0; d < x.ndim(); ++d) {
    bool reduced = dims.empty();
    for (int r : dims) reduced |= normalize_dim(r, x.ndim(), op.name()) == d;
    if (!reduced) continue;
    args.dims.push_back(d);
    DT_CHECK(
        x.size(d) > 0, op.name(),
        "dimension {} of {} is empty, and the {} of nothing is not defined", d,
        x.spec()->to_string(), max ? "maximum" : "minimum");
    kept[d] = 1;
  }
  if (args.dims.empty()) return alias(x);
  DistTensor y = apply1(op, {&x, 1}, args);
  return keepdim ? reshape(y, kept) : y;
}

}  // namespace

std::vector<const Op*> reduce_ops() {
  return {&extremum_op(true), &extremum_op(false)};
}

DistTensor amax(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(true, x, std::move(dims), keepdim);
}
DistTensor amin(const DistTensor& x, std::vector<int> dims, bool keepdim) {
  return extremum(false, x, std::move(dims), keepdim);
}

}  // namespace dtensor
