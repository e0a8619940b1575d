// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/exact.h"

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"

namespace dtensor {
namespace {

// Adds two exact sums.
class AddExact : public RuleOp {
 public:
  AddExact()
      : RuleOp("add_exact", "...,...->... | linear 0,1",
               {.differentiable = false, .saved_inputs = 0}) {}

  std::vector<DType> out_dtypes(std::span<const DType>,
                                const Attrs&) const override {
    return {DType::kExact};
  }
  void compute(Compute& c) const override {
    const Tensor& sum = c.out[0];
    const Operand parts[] = {{c.in[0].data(), c.in[0].strides()},
                             {c.in[1].data(), c.in[1].strides()}};
    c.device().reduce(c.stream, ReduceOp::kSum, DType::kExact, sum.shape(),
                      sum.mutable_data(), sum.strides(), parts, 1);
  }
};

}  // namespace

DistTensor add_cotangents(const DistTensor& a, const DistTensor& b) {
  constexpr DType kExact = DType::kExact;
  if (a.dtype() != kExact && b.dtype() != kExact) return add(a, b);
  return apply1(op_of<AddExact>(), {cast(a, kExact), cast(b, kExact)});
}

}  // namespace dtensor
