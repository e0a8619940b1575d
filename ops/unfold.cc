// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/unfold.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/kernels/pool.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/windows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct UnfoldArgs {
  static constexpr Fields kFields = {"window", "stride", "pad", "dilation",
                                     "size"};
  Triple window = {}, stride = {}, pad = {}, dilation = {};
  Triple size = {};  // of the space of the tensor that the operator makes
};

// x [b, c, h, w] -> y [b, c, taps, m, n], where (m, n) are windows, and the
// reverse.
class Unfold : public Op {
 public:
  explicit Unfold(bool reverse)
      : Op(reverse ? "fold" : "unfold", {.work = {1}, .saved_inputs = 0}),
        reverse_(reverse) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& args = attrs.as<UnfoldArgs>();
    const std::string_view near = this->near(), far = this->far();
    std::vector<std::pair<char, int64_t>> sizes{{near[0], args.size[0]},
                                                {near[1], args.size[1]}};
    if (!reverse_) sizes.push_back({'k', args.window[0] * args.window[1]});
    BoundRule bound(
        Rule(fmt::format(
            "bc{}{}~{}~->bc{}{}^{}^ | linear 0; link {} {}; link {} {}",
            reverse_ ? "k!" : "", far[0], far[1], reverse_ ? "" : "k!", near[0],
            near[1], near[0], far[0], near[1], far[1])),
        shapes, name(), sizes);
    add_windows(bound, sizes_of(args), reverse_, near, far);
    return bound;
  }

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    DT_CHECK(is_float(in[0]) || in[0] == DType::kI32 || in[0] == DType::kI64,
             name(),
             "takes floats, i32 or i64, but got {}; cast x to one of them",
             dtensor::name(in[0]));
    return {in[0]};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<UnfoldArgs>();
    const Windows windows(c, sizes_of(args), reverse_, near(), far());
    const Tensor part = windows.with_halo(0);
    kernels::Pool of{.type = part.dtype()};
    of.planes = part.shape()[0] * part.shape()[1];
    windows.describe(of);
    void* const made = c.out[0].mutable_data();
    if (reverse_)
      c.run(kernels::Fold{of, part.data(), made});
    else
      c.run(kernels::Unfold{of, part.data(), made});
  }

  InputGradients gradient(const GradientCall& g) const override;

  std::vector<Sample> samples() const override {
    const UnfoldArgs args{
        Shape{2, 3}, Shape{2, 1}, Shape{1, 0}, Shape{1, 2}, {}};
    UnfoldArgs unfold = args, fold = args;
    unfold.size = Shape{4, 3};
    fold.size = Shape{7, 7};
    if (reverse_) return {{{{{2, 3, 6, 4, 3}}}, fold, true}};
    return {{{{{2, 3, 7, 7}}}, unfold, true}};
  }

 private:
  std::string_view near() const { return reverse_ ? "hw" : "mn"; }
  std::string_view far() const { return reverse_ ? "mn" : "hw"; }
  static WindowSizes sizes_of(const UnfoldArgs& a) {
    return {a.stride, a.pad, a.dilation, a.window};
  }
  const bool reverse_;
};

const Unfold& op_for(bool reverse) {
  static const Unfold unfold(false), fold(true);
  return reverse ? fold : unfold;
}

InputGradients Unfold::gradient(const GradientCall& g) const {
  UnfoldArgs args = g.attrs.as<UnfoldArgs>();
  const Shape& in = g.decision->in[0]->shape();
  args.size = Shape{in[in.size() - 2], in[in.size() - 1]};
  return {apply1(op_for(!reverse_), {g.cotangents[0]}, args)};
}

// The arguments, without a size.
UnfoldArgs args_of(std::string_view op, const std::vector<int64_t>& window,
                   const UnfoldOptions& o) {
  return {per_dimension(window, 2, "the window", 1, op),
          per_dimension(o.stride, 2, "stride", 1, op),
          per_dimension(o.padding, 2, "padding", 0, op),
          per_dimension(o.dilation, 2, "dilation", 1, op),
          {}};
}

// The numbers of windows of an image of this size.
Shape windows_in(std::string_view op, const UnfoldArgs& a, const Shape& size) {
  Shape windows;
  for (int d = 0; d < 2; ++d)
    windows.push_back(windows_along({a.stride, a.pad, a.dilation, a.window}, d,
                                    size[d], "the image", op));
  return windows;
}

}  // namespace

DistTensor unfold(const DistTensor& given, const PerDimension& window,
                  const UnfoldOptions& o) {
  return with_batch(given, 2, "unfold", [&](const DistTensor& x) {
    UnfoldArgs a = args_of("unfold", window, o);
    a.size = windows_in("unfold", a, {x.size(2), x.size(3)});
    return reshape(apply1(op_for(false), {x}, a),
                   {x.size(0), x.size(1) * a.window[0] * a.window[1],
                    a.size[0] * a.size[1]});
  });
}

DistTensor fold(const DistTensor& given, const PerDimension& size,
                const PerDimension& window, const UnfoldOptions& o) {
  return with_batch(given, 1, "fold", [&](const DistTensor& x) {
    UnfoldArgs a = args_of("fold", window, o);
    a.size = per_dimension(size, 2, "the size", 1, "fold");
    const Shape windows = windows_in("fold", a, a.size);
    const int64_t taps = a.window[0] * a.window[1],
                  count = windows[0] * windows[1];
    DT_CHECK(x.size(1) % taps == 0 && x.size(2) == count, "fold",
             "x has shape {}, but windows of {} elements, {} of them, need a "
             "multiple of {} and {} in its last two dimensions; pass such an "
             "x, or other sizes",
             to_string(x.shape()), taps, count, taps, count);
    return apply1(op_for(true),
                  {reshape(x, {x.size(0), x.size(1) / taps, taps, windows[0],
                               windows[1]})},
                  a);
  });
}

static const OpFamily kFamily("unfold", [] {
  return OpList{&op_for(false), &op_for(true)};
});

}  // namespace dtensor
