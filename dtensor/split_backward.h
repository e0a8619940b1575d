// A backward pass that does first what others wait for, and later what only
// single leaves need: the gradients of weights, in a pipeline without bubbles
// (Qi et al., arXiv 2401.10241).
//
// The pass goes back through the graph as backward_pass() does, but where an
// edge leads to one of the `later` inputs and to nothing else that is wanted,
// it stops: the cotangent that would go on from there is not computed. The node
// keeps what it saved until rest() computes it. Of y = x W with x made by other
// layers, the first part is the product with W, and the second that with x. (A
// gradient that computes several inputs' cotangents at once computes them
// twice.)
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

class SplitBackward {
 public:
  using Add = std::function<DistTensor(const DistTensor&, const DistTensor&)>;
  // As BackwardOptions::complete, of input i of `later`.
  using Complete = std::function<void(size_t i, DistTensor&)>;
  // Does the first part. No tensor is to be listed twice. The graph is let go
  // of as the two parts go back through it. Every rank of the mesh calls it.
  SplitBackward(const std::vector<DistTensor>& outputs,
                const std::vector<DistTensor>& cotangents,
                const std::vector<DistTensor>& now,
                const std::vector<DistTensor>& later, Add add);
  ~SplitBackward();
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;

  // The cotangents of `now`; undefined where the output does not depend on it.
  std::vector<DistTensor> first() const;
  // Does the second part: those of `later`. Once.
  std::vector<DistTensor> rest(const Complete& = {});

 private:
  class Pass;
  std::unique_ptr<Pass> pass_;
};

}  // namespace dtensor
