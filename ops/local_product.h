// A contraction of one or two local operands: what a rank computes of it.
#pragma once
#include <array>
#include <vector>

#include "dtensor/ops/compute.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/placement/rule.h"

namespace dtensor {

// Of a rule without "..." and without groups, for parts of any sizes and
// strides; what does not depend on them is made once.
class LocalProduct {
 public:
  // Of the only input, or of two from `first` on.
  explicit LocalProduct(const Rule&, size_t first = 0);
  // c.out[0], which of one operand's is contiguous, = (or += if c.accumulate,
  // of two operands and no factor that is the output's alone) the sum of
  // products of these of c.in: with an epilogue, whether that was done, too. It
  // is not where there is nothing to add up, or it takes several products.
  // REQUIRES for one: n is the output's only factor that the first operand
  // lacks.
  bool run(Compute& c, const kernels::Epilogue& = {}) const;

 private:
  // Where a factor is: its dimension in the two operands and the output, -1
  // where they lack it.
  struct Place {
    int a = -1, b = -1, out = -1;
    bool repeats() const { return a < 0 && b < 0; }
  };
  // A loop of the product: a run of factors that all operands walk at one
  // stride (0 where an operand lacks them).
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
  // False when there is nothing to add up.
  bool loops(const Tensor& a, const Tensor& b, const Tensor& out,
             Loops& list) const;
  bool multiply(Compute& c, const Loops&, const Tensor& out,
                const kernels::Epilogue&) const;

  size_t first_;
  bool single_;
  // Of one operand: the dimensions that are summed over, and for each dimension
  // of the output the one of what is left that it is, -1 where that repeats.
  uint32_t reduced_ = 0;
  std::vector<int> from_;
  bool in_order_ = true;  // the output is what is left
  // Of two, in an order in which runs can join: the output's factors as it has
  // them, then the contracted ones as the first operand has them.
  std::vector<Place> places_;
  bool repeats_ = false;  // some factor is the output's alone
};

}  // namespace dtensor
