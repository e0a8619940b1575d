// SPDX-License-Identifier: Apache-2.0
// A contraction of one or two local operands: this rank's share of the work.
#pragma once
#include <array>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/placement/rule.h"

namespace dtensor {

// A LocalProduct is made once from a rule that has neither "..." nor groups. It
// runs on parts of any sizes and strides. In a reproducible run, and with an
// output of type exact, it adds floats as docs/reproducible.md defines.
class LocalProduct {
 public:
  // The operands are the rule's first two inputs, or its only one.
  explicit LocalProduct(const Rule&);
  // Sets c.out[0] to the contraction of c.in. With one operand, c.out[0] must
  // be contiguous, unless it becomes a view. Returns true if the kernel also
  // applied the epilogue. It cannot if there is nothing to add up, or if
  // several kernel calls are needed. REQUIRES with an epilogue: the first
  // operand lacks exactly one factor of the output, the n of kernels::Epilogue.
  bool run(Compute& c, const kernels::Epilogue& = {}) const;
  // The factor that a product of two operands sums in leaves: the last one that
  // the output lacks, in the order of the operands. -1 if there is none.
  static int leaf_factor(const Rule&);
  // Whether there is one operand, and nothing is summed. The output is then a
  // view of the operand.
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
    bool summed() const { return !in_out; }
    bool same_operands(const Loop& o) const {
      return in_a == o.in_a && in_b == o.in_b && in_out == o.in_out;
    }
  };
  static constexpr size_t kMostLoops = 3 * kMaxDims;
  using Loops = InlineVec<Loop, kMostLoops>;

  void one_operand(Compute& c) const;
  bool two_operands(Compute& c, const kernels::Epilogue&) const;
  // Fills the list. Returns false if a factor has size 0, so that there is
  // nothing to add up. `by_leaves`: each summed factor has a loop of its own.
  bool loops(const Tensor& a, const Tensor& b, const Tensor& out,
             bool by_leaves, Loops& list) const;
  bool multiply(Compute& c, const Loops&, const Tensor& out, bool by_leaves,
                const kernels::Epilogue&) const;

  bool single_;
  // For one operand: bit d is set if its dimension d is summed over.
  uint32_t reduced_ = 0;
  // For one operand: from_[d] is the dimension of the sum that becomes
  // dimension d of the output, or -1 if the sum is repeated along d.
  std::vector<int> from_;
  bool in_order_ = true;  // the output is the sum itself
  // For two operands: the factors, in an order that lets loops be joined. The
  // output's factors come first, in its order, then the contracted ones, in the
  // first operand's order.
  std::vector<Place> places_;
  bool repeats_ = false;  // some factor occurs only in the output
};

}  // namespace dtensor
