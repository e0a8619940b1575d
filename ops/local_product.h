// SPDX-License-Identifier: Apache-2.0
// A contraction of one or two local operands: this rank's share of the work.
#pragma once
#include <array>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/placement/rule.h"

namespace dtensor {

// Made once from a rule without "..." and groups; runs on parts of any sizes
// and strides.
class LocalProduct {
 public:
  // Contracts the only input, or the first two.
  explicit LocalProduct(const Rule&);
  // Sets c.out[0] to the contraction of these c.in, or adds to it if
  // c.accumulate (only with two operands, and without factors that occur only
  // in the output). With one operand, c.out[0] must be contiguous, unless it is
  // set to a view. Returns true if the epilogue was fused; it is not if there
  // is nothing to add up, or if several kernel calls are needed. REQUIRES with
  // an epilogue: n is the only factor of the output that the first operand
  // lacks.
  bool run(Compute& c, const kernels::Epilogue& = {}) const;
  // Whether the output is a view of the only operand: nothing is summed.
  static bool views(const Rule&);

 private:
  // The dimensions of a factor in the two operands and the output, or -1 where
  // it does not occur.
  struct Place {
    int a = -1, b = -1, out = -1;
    bool repeats() const { return a < 0 && b < 0; }
  };
  // A loop of the product: consecutive factors that every operand walks with
  // one stride (0 if the operand lacks them).
  struct Loop {
    int64_t size, a, b, out;
    bool in_a, in_b, in_out;
    bool same_operands(const Loop& o) const {
      return in_a == o.in_a && in_b == o.in_b && in_out == o.in_out;
    }
  };
  static constexpr size_t kMostLoops = 3 * kMaxDims;
  using Loops = InlineVec<Loop, kMostLoops>;

  void one_operand(Compute& c) const;
  bool two_operands(Compute& c, const kernels::Epilogue&) const;
  // Fills the list. Returns false if there is nothing to add up.
  bool loops(const Tensor& a, const Tensor& b, const Tensor& out,
             Loops& list) const;
  bool multiply(Compute& c, const Loops&, const Tensor& out,
                const kernels::Epilogue&) const;

  bool single_;
  // For one operand: a bit for each dimension that is summed over; and for each
  // dimension of the output, its dimension in what remains, or -1 if repeated.
  uint32_t reduced_ = 0;
  std::vector<int> from_;
  bool in_order_ = true;  // the output equals what remains
  // For two operands, in an order that lets loops be joined: the output's
  // factors in its order, then contracted ones in the first operand's order.
  std::vector<Place> places_;
  bool repeats_ = false;  // some factor occurs only in the output
};

}  // namespace dtensor
