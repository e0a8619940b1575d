// Rotary position embedding.
#include "dtensor/ops/attention.h"
#include "dtensor/ops/attention_call.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/rows.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct RotaryArgs {
  static constexpr Fields kFields = {value("offset"), "inverse",
                                     value("theta")};
  int64_t offset;
  bool inverse;
  double theta;
};

class RotaryOp : public RuleOp {
 public:
  RotaryOp()
      : RuleOp("rotary", "bshd!->bshd | linear 0", {.saved_inputs = 0}) {}

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
  // The kernel takes one range of consecutive positions at a time.
  void compute(Compute& c) const override {
    const Tensor x = internal::with_unit_rows(c.in[0]);
    const RotaryArgs& args = c.attrs.as<RotaryArgs>();
    int64_t row = 0;
    for (const Interval& range : c.ranges_of('s')) {
      const Tensor from = x.slice(1, row, row + range.size());
      const Tensor to = c.out[0].slice(1, row, row + range.size());
      row += range.size();
      kernels::Rotary a{.type = x.dtype()};
      a.b = from.shape()[0];
      a.s = from.shape()[1];
      a.h = from.shape()[2];
      a.d = from.shape()[3];
      a.x = internal::heads_in(from);
      a.out = internal::heads_out(to);
      a.theta = args.theta;
      a.position_offset = args.offset + range.lo;
      a.inverse = args.inverse;
      c.run(a);
    }
  }

  // The gradient rotates by the opposite angle.
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

DistTensor rotary(const DistTensor& x, double theta, int64_t offset) {
  return apply1(rotary_op(), {&x, 1}, RotaryArgs{offset, false, theta});
}

const Op& internal::rotary_operator() { return rotary_op(); }

}  // namespace dtensor
