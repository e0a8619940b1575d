// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/kernels/convolution.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/ops/windows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using Makes = kernels::Convolution::Makes;

struct ConvolutionArgs {
  static constexpr Fields kFields = {"stride", "pad", "dilation", "groups",
                                     "size"};
  Triple stride = {}, pad = {}, dilation = {};  // pad is in front
  int64_t groups = 1;
  Triple size = {};  // of the space of the tensor that the operator makes
};

// A convolution relates three tensors: x, the weight and y. From any two of
// them, an operator makes the third (see kernels::Convolution). The operators
// are the gradients of each other.
//
// If the positions of the made tensor are split, each rank fetches the elements
// of the other tensor that its own positions meet: the halo.
class Convolution : public Op {
 public:
  Convolution(std::string name, Makes makes, bool bias = false)
      : Op(std::move(name), {.work = {2}, .sums = OpFacts::Sums::kTogether}),
        makes_(makes),
        bias_(bias) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& args = attrs.as<ConvolutionArgs>();
    const int64_t groups = args.groups;
    std::vector<std::pair<char, int64_t>> sizes;
    if (groups > 1) sizes.push_back({'g', groups});
    // The channels of a group.
    const bool weight = makes_ != Makes::kWeight;
    sizes.push_back({'c', weight ? shapes[1][1] : shapes[0][1] / groups});
    sizes.push_back({'o', shapes[1][weight ? 0 : 1] / groups});
    for (int d = 0; d < args.size.size(); ++d)
      sizes.push_back({letter(made(), d), args.size[d]});
    BoundRule bound(rule(args.size.size(), groups > 1), shapes, name(), sizes);
    add_windows(bound, sizes_of(bound, args), makes_ == Makes::kX, near(),
                far());
    return bound;
  }

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    for (size_t i = 0; i < in.size(); ++i)
      DT_CHECK(in[i] == in[0] && (is_float(in[0]) || in[0] == DType::kI32 ||
                                  in[0] == DType::kI64),
               name(),
               "input 0 is {} and input {} is {}; cast both to one type of "
               "float, i32 or i64",
               dtensor::name(in[0]), i, dtensor::name(in[i]));
    return {in[0]};
  }

  std::vector<Sample> samples() const override;

  void compute(Compute& c) const override;

  InputGradients gradient(const GradientCall& g) const override;

 private:
  static constexpr std::string_view kX = "hij", kY = "mnp", kTaps = "klq";
  static char letter(std::string_view of, int d) {
    return of[static_cast<size_t>(d)];
  }
  std::string_view made() const {
    return makes_ == Makes::kY ? kY : makes_ == Makes::kX ? kX : kTaps;
  }
  // `near` and `far` of the Windows; `far` are the positions of input 0.
  std::string_view near() const { return makes_ == Makes::kX ? kX : kY; }
  std::string_view far() const { return makes_ == Makes::kX ? kY : kX; }

  Rule rule(int space, bool groups) const;
  static WindowSizes sizes_of(const BoundRule& rule,
                              const ConvolutionArgs& args) {
    WindowSizes sizes{args.stride, args.pad, args.dilation, {}};
    for (int d = 0; d < args.size.size(); ++d)
      sizes.taps.push_back(rule.size(rule.rule().factor(letter(kTaps, d))));
    return sizes;
  }

  const Makes makes_;
  const bool bias_;
};

Rule Convolution::rule(int space, bool groups) const {
  const std::string in = groups ? "(gc)" : "c", out = groups ? "(go)" : "o";
  std::string near_term, far_term, weight = out + "c", notes;
  for (int d = 0; d < space; ++d) {
    near_term += {letter(near(), d), '^'};
    far_term += {letter(far(), d), '~'};
    weight += {letter(kTaps, d), '!'};
    notes += fmt::format("link {} {}; ", letter(near(), d), letter(far(), d));
  }
  const bool x_is_near = makes_ == Makes::kX;
  const std::string x = "b" + in + (x_is_near ? near_term : far_term);
  const std::string y = "b" + out + (x_is_near ? far_term : near_term);
  std::string text = makes_ == Makes::kY   ? x + "," + weight
                     : makes_ == Makes::kX ? y + "," + weight
                                           : x + "," + y;
  if (bias_) text += "," + out;
  text += "->" + (makes_ == Makes::kY ? y : makes_ == Makes::kX ? x : weight);
  return Rule(text + " | " + notes +
              (bias_ ? "linear 0,2; linear 1,2" : "linear 0; linear 1"));
}

void Convolution::compute(Compute& c) const {
  const auto& args = c.attrs.as<ConvolutionArgs>();
  const Windows windows(c, sizes_of(*c.decision.rule, args),
                        makes_ == Makes::kX, near(), far());
  const Tensor part = windows.with_halo(0);
  const Tensor other = c.in[1].to_contiguous();
  const Tensor bias = bias_ ? c.in[2].to_contiguous() : Tensor();

  kernels::Convolution k{.makes = makes_, .type = part.dtype()};
  const auto local = [&](char factor) { return length(c.ranges_of(factor)); };
  k.b = part.shape()[0];
  k.groups = args.groups > 1 ? local('g') : 1;
  k.c = local('c');
  k.o = local('o');
  windows.describe(k);
  (makes_ == Makes::kX ? k.y : k.x) = part.data();
  (makes_ == Makes::kWeight ? k.y : k.weight) = other.data();
  // If ranks split the sum over c, only one of them adds the bias.
  if (bias_ && c.first_of('c')) k.bias = bias.data();
  k.made = c.out[0].mutable_data();
  c.run(k);
}

// One operator for each tensor that it makes, and one with a bias.
const Convolution& op_for(Makes makes, bool bias = false) {
  static const Convolution y("convolution", Makes::kY);
  static const Convolution with_bias("convolution_bias", Makes::kY, true);
  static const Convolution x("convolution_transpose", Makes::kX);
  static const Convolution weight("convolution_weight", Makes::kWeight);
  if (bias) return with_bias;
  return makes == Makes::kY ? y : makes == Makes::kX ? x : weight;
}

Triple space_of(const DistTensor& t) {
  Triple s;
  for (int d = 2; d < t.ndim(); ++d) s.push_back(t.size(d));
  return s;
}

// Makes a tensor whose space is that of `like`.
DistTensor make(Makes makes, const DistTensor& a, const DistTensor& b,
                ConvolutionArgs args, const DistTensor& like) {
  args.size = space_of(like);
  return apply1(op_for(makes), {a, b}, args);
}

InputGradients Convolution::gradient(const GradientCall& g) const {
  const auto& args = g.attrs.as<ConvolutionArgs>();
  const DistTensor &a = g.inputs[0], &b = g.inputs[1], &dz = g.cotangents[0];
  InputGradients grads(g.inputs.size());
  const auto set = [&](size_t i, Makes makes, const DistTensor& first,
                       const DistTensor& second) {
    if (g.needed[i]) grads[i] = make(makes, first, second, args, g.inputs[i]);
  };
  switch (makes_) {
    case Makes::kY:  // of x, weight
      set(0, Makes::kX, dz, b);
      set(1, Makes::kWeight, a, dz);
      break;
    case Makes::kX:  // of y, weight
      set(0, Makes::kY, dz, b);
      set(1, Makes::kWeight, dz, a);
      break;
    case Makes::kWeight:  // of x, y
      set(0, Makes::kX, b, dz);
      set(1, Makes::kY, a, dz);
      break;
  }
  if (bias_ && g.needed[2]) {
    std::vector<int> dims{0};
    for (int d = 2; d < dz.ndim(); ++d) dims.push_back(d);
    grads[2] = sum(dz, dims);
  }
  return grads;
}

std::vector<Sample> Convolution::samples() const {
  // Batch, groups, channels of a group of x and y; then for each dimension of
  // space the size of x, taps, stride, pad, dilation.
  struct Call {
    int64_t b, groups, c, o;
    std::vector<std::array<int64_t, 5>> space;
  };
  const Call calls[] = {
      {2, 1, 3, 2, {{7, 3, 1, 1, 1}, {5, 2, 2, 0, 1}}},
      {1, 2, 1, 2, {{9, 2, 2, 1, 3}}},
      {2, 1, 2, 1, {{3, 1, 2, 0, 1}, {4, 2, 1, 1, 1}, {2, 3, 1, 1, 1}}}};
  std::vector<Sample> samples;
  for (const Call& call : calls) {
    ConvolutionArgs args{.groups = call.groups};
    Shape x{call.b, call.groups * call.c}, y{call.b, call.groups * call.o};
    Shape weight{call.groups * call.o, call.c};
    for (const auto& [size, taps, stride, pad, dilation] : call.space) {
      x.push_back(size);
      y.push_back((size + 2 * pad - dilation * (taps - 1) - 1) / stride + 1);
      weight.push_back(taps);
      args.stride.push_back(stride);
      args.pad.push_back(pad);
      args.dilation.push_back(dilation);
    }
    const Shape& made = makes_ == Makes::kY   ? y
                        : makes_ == Makes::kX ? x
                                              : weight;
    for (int d = 2; d < made.size(); ++d) args.size.push_back(made[d]);
    std::vector<SampleInput> inputs{{makes_ == Makes::kX ? y : x},
                                    {makes_ == Makes::kWeight ? y : weight}};
    if (bias_) inputs.push_back({{call.groups * call.o}});
    samples.push_back({inputs, args, true});
  }
  return samples;
}

// The options, with one number for each dimension of space.
struct Space {
  Space(const ConvOptions& o, int n, std::string_view op)
      : stride(per_dimension(o.stride, n, "stride", 1, op)),
        padding(per_dimension(o.padding.sizes(), n, "padding", 0, op)),
        dilation(per_dimension(o.dilation, n, "dilation", 1, op)),
        output_padding(
            per_dimension(o.output_padding, n, "output_padding", 0, op)) {}
  Triple stride, padding, dilation, output_padding;
};

void check(std::string_view op, const DistTensor& x, const DistTensor& weight,
           const DistTensor& bias, int space, int64_t groups, bool transposed) {
  check_defined(op, {x, weight});
  DT_CHECK(weight.ndim() == space + 2, op,
           "the weight has shape {}, with {} dimensions; pass one of {}: two "
           "of channels, and {} of space",
           to_string(weight.shape()), weight.ndim(), space + 2, space);
  const int64_t channels = x.size(1), first = weight.size(0),
                second = weight.size(1);
  DT_CHECK(groups >= 1 && first % groups == 0, op,
           "groups is {}, and the weight's shape {}; write a number of groups "
           "from 1 that divides {}, the weight's first size",
           groups, to_string(weight.shape()), first);
  DT_CHECK(channels == (transposed ? first : second * groups), op,
           "x has shape {}, with {} channels, but a weight of shape {} with {} "
           "is for {} channels",
           to_string(x.shape()), channels, to_string(weight.shape()),
           quantity(groups, "group", "groups"),
           transposed ? first : second * groups);
  for (int d = 0; d < space; ++d)
    DT_CHECK(weight.size(d + 2) > 0, op,
             "the weight has shape {}; its dimensions of space need at least "
             "one element each",
             to_string(weight.shape()));
  if (!bias.defined()) return;
  const int64_t made = transposed ? second * groups : first;
  DT_CHECK(bias.ndim() == 1 && bias.size(0) == made, op,
           "the bias has shape {}; pass one of shape [{}], for the channels of "
           "the result",
           to_string(bias.shape()), made);
}

DistTensor convolve(std::string_view op, int space, const DistTensor& x,
                    const DistTensor& weight, const DistTensor& bias,
                    const ConvOptions& options) {
  check(op, x, weight, bias, space, options.groups, false);
  const Space o(options, space, op);
  for (int d = 0; d < space; ++d)
    DT_CHECK(o.output_padding[d] == 0, op,
             "output_padding is {} in dimension {} of space, but only "
             "transposed convolutions have one; leave it out",
             o.output_padding[d], d);
  ConvolutionArgs args{o.stride, o.padding, o.dilation, options.groups, {}};
  if (options.padding.same()) args.pad = {};
  for (int d = 0; d < space; ++d) {
    const int64_t size = x.size(d + 2) + 2 * o.padding[d],
                  span = o.dilation[d] * (weight.size(d + 2) - 1);
    if (options.padding.same()) {
      DT_CHECK(
          o.stride[d] == 1, op,
          "padding is \"same\" and the stride {} in dimension {} of space; "
          "write a stride of 1, or the padding as a number",
          o.stride[d], d);
      args.pad.push_back(span / 2);
      args.size.push_back(x.size(d + 2));
      continue;
    }
    DT_CHECK(size > span, op,
             "x has {} elements in dimension {} of space, with padding, but a "
             "window of the weight spans {}; pad more, or take a smaller "
             "weight",
             size, d, span + 1);
    args.size.push_back((size - span - 1) / o.stride[d] + 1);
  }
  if (!bias.defined()) return apply1(op_for(Makes::kY), {x, weight}, args);
  return apply1(op_for(Makes::kY, true), {x, weight, bias}, args);
}

DistTensor convolve_transposed(std::string_view op, int space,
                               const DistTensor& y, const DistTensor& weight,
                               const DistTensor& bias,
                               const ConvOptions& options) {
  check(op, y, weight, bias, space, options.groups, true);
  DT_CHECK(!options.padding.same(), op,
           "padding is \"same\"; write the padding as a number");
  const Space o(options, space, op);
  ConvolutionArgs args{o.stride, o.padding, o.dilation, options.groups, {}};
  for (int d = 0; d < space; ++d) {
    DT_CHECK(o.output_padding[d] < std::max(o.stride[d], o.dilation[d]), op,
             "output_padding is {} in dimension {} of space; write less than "
             "the stride, {}, or than the dilation, {}",
             o.output_padding[d], d, o.stride[d], o.dilation[d]);
    const int64_t size = (y.size(d + 2) - 1) * o.stride[d] - 2 * o.padding[d] +
                         o.dilation[d] * (weight.size(d + 2) - 1) +
                         o.output_padding[d] + 1;
    DT_CHECK(size > 0, op,
             "the result would have {} elements in dimension {} of space; pad "
             "less, or pass a larger x",
             size, d);
    args.size.push_back(size);
  }
  const DistTensor x = apply1(op_for(Makes::kX), {y, weight}, args);
  if (!bias.defined()) return x;
  Shape each{bias.size(0)};
  for (int d = 0; d < space; ++d) each.push_back(1);
  return add(x, reshape(bias, each));
}

// Calls one of these two functions with an x that has a batch.
DistTensor call(decltype(convolve)& fn, std::string_view op, int space,
                const DistTensor& x, const DistTensor& weight,
                const DistTensor& bias, const ConvOptions& o) {
  return with_batch(x, space, op, [&](const DistTensor& batch) {
    return fn(op, space, batch, weight, bias, o);
  });
}

}  // namespace

// A convolution of each channel with ones.
DistTensor sums_of_windows(const DistTensor& x, const WindowSizes& sizes,
                           const Triple& size) {
  Shape weight{x.size(1), 1};
  Triple unit;
  for (int d = 0; d < size.size(); ++d) {
    weight.push_back(sizes.taps[d]);
    unit.push_back(1);
  }
  return apply1(
      op_for(Makes::kY), {x, ones(weight, x.mesh(), {}, x.dtype())},
      ConvolutionArgs{sizes.stride, sizes.pad, unit, x.size(1), size});
}

Padding::Padding(Text, std::string_view text)
    : sizes_{0}, same_(text == "same") {
  DT_CHECK(same_ || text == "valid", "conv",
           "padding is \"{}\"; write \"same\", \"valid\", a number, or one for "
           "each dimension of space",
           text);
}

DistTensor conv1d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias, const ConvOptions& o) {
  return call(convolve, "conv1d", 1, x, weight, bias, o);
}
DistTensor conv2d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias, const ConvOptions& o) {
  return call(convolve, "conv2d", 2, x, weight, bias, o);
}
DistTensor conv3d(const DistTensor& x, const DistTensor& weight,
                  const DistTensor& bias, const ConvOptions& o) {
  return call(convolve, "conv3d", 3, x, weight, bias, o);
}
DistTensor conv_transpose1d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias, const ConvOptions& o) {
  return call(convolve_transposed, "conv_transpose1d", 1, x, weight, bias, o);
}
DistTensor conv_transpose2d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias, const ConvOptions& o) {
  return call(convolve_transposed, "conv_transpose2d", 2, x, weight, bias, o);
}
DistTensor conv_transpose3d(const DistTensor& x, const DistTensor& weight,
                            const DistTensor& bias, const ConvOptions& o) {
  return call(convolve_transposed, "conv_transpose3d", 3, x, weight, bias, o);
}

static const OpFamily kFamily("convolution", [] {
  return OpList{&op_for(Makes::kY), &op_for(Makes::kY, true),
                &op_for(Makes::kX), &op_for(Makes::kWeight)};
});

}  // namespace dtensor
