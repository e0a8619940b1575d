// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding.
#include "dtensor/ops/kernels/rotary.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/attention.h"
#include "dtensor/ops/attention_call.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct RotaryArgs {
  static constexpr Fields kFields = {value("offset"),
                                     "inverse",
                                     value("theta"),
                                     "dims",
                                     value("factor"),
                                     value("low_freq_factor"),
                                     value("high_freq_factor"),
                                     value("original_positions")};
  int64_t offset;
  bool inverse;
  double theta;
  int64_t dims;  // this and theta, factor, ...: see Rope
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  int64_t original_positions = 0;
};

class RotaryOp : public Op {
 public:
  RotaryOp() : Op("rotary", {.saved_inputs = 2}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    DT_CHECK(shapes[0].size() == 4 && shapes[0][3] % 2 == 0, name(),
             "x has shape {}; write [b, s, heads, d] with an even d",
             to_string(shapes[0]));
    const int64_t dims = attrs.as<RotaryArgs>().dims;
    DT_CHECK(dims >= 0 && dims <= shapes[0][3] && dims % 2 == 0, name(),
             "dims is {}, but a head of x has {} numbers; write an even number "
             "from 0 to {}",
             dims, shapes[0][3], shapes[0][3]);
    return BoundRule(Rule(shapes.size() == 1 ? "bshd!->bshd | linear 0"
                                             : "bshd!,bs->bshd | linear 0"),
                     shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    return {{{{{2, 5, 3, 4}}}, RotaryArgs{0, false, 100, 0}, true},
            {{{{3, 7, 1, 2}}}, RotaryArgs{3, true, 100, 0}, true},
            {{{{1, 1, 5, 6}}}, RotaryArgs{11, false, 10000, 4, 2}, true},
            {{{{2, 5, 3, 4}}, {{2, 5}, SampleInput::Values::kIndex, 40}},
             RotaryArgs{0, false, 100, 0, 8, 1, 4, 16},
             true}};
  }
  void compute(Compute& c) const override {
    const Tensor x = internal::with_unit_rows(c.in[0]);
    const RotaryArgs& args = c.attrs.as<RotaryArgs>();
    Tensor positions;
    kernels::Rotary a{.type = x.dtype()};
    a.h = x.shape()[2];
    a.d = x.shape()[3];
    a.of = {args.dims > 0 ? args.dims : a.d,
            args.theta,
            args.factor,
            args.low_freq_factor,
            args.high_freq_factor,
            args.original_positions};
    a.inverse = args.inverse;
    const auto rotate = [&](const Tensor& from, const Tensor& to) {
      a.b = from.shape()[0];
      a.s = from.shape()[1];
      a.x = internal::heads_in(from);
      a.out = internal::heads_out(to);
      c.run(a);
    };
    if (c.in.size() > 1) {
      positions = c.in[1].to_contiguous();
      a.positions = positions.ptr<int64_t>();
      return rotate(x, c.out[0]);
    }
    // The kernel takes one range of consecutive positions at a time.
    int64_t row = 0;
    for (const Interval& range : c.ranges_of('s')) {
      a.position_offset = args.offset + range.lo;
      rotate(x.slice(1, row, row + range.size()),
             c.out[0].slice(1, row, row + range.size()));
      row += range.size();
    }
  }

  // The gradient rotates by the opposite angle.
  InputGradients gradient(const GradientCall& c) const override {
    RotaryArgs args = c.attrs.as<RotaryArgs>();
    args.inverse = !args.inverse;
    const Assignment a = inherited(c);
    std::vector<DistTensor> in(c.inputs.begin(), c.inputs.end());
    in[0] = c.cotangents[0];
    InputGradients gradients(in.size());
    gradients[0] = apply1(*this, in, args, &a);
    return gradients;
  }
};

// Throws Error if the members of r that scale the frequencies contradict each
// other.
RotaryArgs args_of(const Rope& r, int64_t offset) {
  DT_CHECK(r.factor > 0 || (r.factor == 0 && r.original_positions == 0),
           "rotary",
           "factor is {} and original_positions is {}; write a factor above 0 "
           "to scale the frequencies, or 0 for both",
           r.factor, r.original_positions);
  DT_CHECK(
      r.original_positions == 0 ||
          (r.original_positions > 0 && r.low_freq_factor < r.high_freq_factor),
      "rotary",
      "original_positions is {}, low_freq_factor {} and high_freq_factor {}; "
      "write original_positions = 0, or a number above 0 with a low factor "
      "below the high one",
      r.original_positions, r.low_freq_factor, r.high_freq_factor);
  return {offset,
          false,
          r.theta,
          r.dims,
          r.factor,
          r.low_freq_factor,
          r.high_freq_factor,
          r.original_positions};
}

}  // namespace

DistTensor rotary(const DistTensor& x, const Rope& of, int64_t offset) {
  return apply1(op_of<RotaryOp>(), x, args_of(of, offset));
}

DistTensor rotary(const DistTensor& x, const Rope& of,
                  const DistTensor& positions) {
  check_defined("rotary", {x, positions});
  const DType t = positions.dtype();
  DT_CHECK(t == DType::kI32 || t == DType::kI64, "rotary",
           "the positions are {}, but must be i32 or i64; write "
           "cast(positions, DType::kI64)",
           name(t));
  return apply1(op_of<RotaryOp>(), {x, cast(positions, DType::kI64)},
                args_of(of, 0));
}

const Op& internal::rotary_operator() { return op_of<RotaryOp>(); }

}  // namespace dtensor
