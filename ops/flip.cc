// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct FlipArgs {
  static constexpr Fields kFields = {"dims"};
  Shape dims;  // in ascending order
};

char factor_of(int64_t dim) { return static_cast<char>('a' + dim); }

// If a dimension to flip is split, every rank fetches the indices that mirror
// its own.
class Flip : public Op {
 public:
  Flip() : Op("flip", {.saved_inputs = 0}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const Shape& dims = attrs.as<FlipArgs>().dims;
    std::string in, out;
    for (int d = 0; d < shapes[0].size(); ++d) {
      out += factor_of(d);
      in += factor_of(d);
      if (std::find(dims.begin(), dims.end(), d) != dims.end()) in += '~';
    }
    return BoundRule(Rule(in + "->" + out + " | linear 0; up 0"), shapes,
                     name());
  }
  std::vector<Sample> samples() const override {
    return {{{{{5, 3}}}, FlipArgs{{0}}, true},
            {{{{3, 2, 7}}}, FlipArgs{{0, 2}}, true}};
  }

  void compute(Compute& c) const override {
    const Shape& dims = c.attrs.as<FlipArgs>().dims;
    AxisMask axes = 0;
    for (int64_t d : dims) axes |= c.axes_of(factor_of(d));
    const Spec* spec = c.decision.in[0];
    Tensor x = c.in[0];
    if (axes)
      x = c.fetch(
          x, axes, [&](const Coord& at) { return spec->region(at); },
          [&](const Coord& at) { return mirrored(*spec, dims, at); });
    if (x.numel() == 0) return;
    Shape strides = x.strides();
    int64_t offset = 0;
    for (int64_t dim : dims) {
      const int d = static_cast<int>(dim);
      offset += (x.shape()[d] - 1) * strides[d];
      strides[d] = -strides[d];
    }
    c.out[0].copy_from(x.as_strided(x.shape(), strides, offset));
  }

  InputGradients gradient(const GradientCall& g) const override {
    const Assignment a = inherited(g);
    return {apply1(*this, g.cotangents, g.attrs, &a)};
  }

 private:
  static Region mirrored(const Spec& spec, const Shape& dims, const Coord& at) {
    Region region = spec.region(at);
    for (int64_t d : dims) {
      IntervalList& list = region[static_cast<size_t>(d)];
      const int64_t n = spec.shape()[static_cast<int>(d)];
      for (Interval& i : list) i = {n - i.hi, n - i.lo};
      std::reverse(list.begin(), list.end());
    }
    return region;
  }
};

}  // namespace

static const OpFamily kFamily("flip", [] { return OpList{&op_of<Flip>()}; });

DistTensor flip(const DistTensor& x, const std::vector<int>& dims) {
  check_defined("flip", x);
  FlipArgs args;
  for (int dim : dims) {
    if (x.ndim() == 0 && (dim == 0 || dim == -1)) continue;
    const int d = normalize_dim(dim, x.ndim(), "flip");
    DT_CHECK(
        std::find(args.dims.begin(), args.dims.end(), d) == args.dims.end(),
        "flip", "dimension {} of {} is named twice; name it once", d,
        x.spec()->to_string());
    args.dims.push_back(d);
  }
  std::sort(args.dims.begin(), args.dims.end());
  if (args.dims.empty()) return clone(x);
  return apply1(op_of<Flip>(), x, args);
}

}  // namespace dtensor
