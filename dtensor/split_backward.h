// SPDX-License-Identifier: Apache-2.0
// A backward pass in two parts. The first part computes the cotangents that
// other pipeline stages wait for. The second part may come later: it computes
// the gradients of weights, for which no stage waits. Pipeline schedules
// without bubbles need this (Qi et al., arXiv 2401.10241).
//
// The first part goes back through the graph like backward_pass(), but stops at
// edges that lead to one of the `later` inputs and to no other wanted input:
// the cotangent for such an edge is not computed, and the node keeps its saved
// values until rest() computes it. For y = x W, with x made by other layers,
// the first part is the product with W, and the second part the product with x.
// (A node that can only compute the cotangents of several inputs together may
// do so once in each part.)
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "dtensor/dist_tensor.h"

namespace dtensor {

class SplitBackward {
 public:
  using Add = std::function<DistTensor(const DistTensor&, const DistTensor&)>;
  // Like BackwardOptions::complete, for input i of `later`.
  using Complete = std::function<void(size_t i, DistTensor&)>;
  // Does the first part. `now` and `later` together must not list a tensor
  // twice. Nodes drop their saved values once both parts have used them.
  // Collective over the mesh, as is rest().
  SplitBackward(std::span<const DistTensor> outputs,
                std::span<const DistTensor> cotangents,
                const std::vector<DistTensor>& now,
                const std::vector<DistTensor>& later, Add add);
  ~SplitBackward();
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;

  // The cotangents of `now`; undefined for inputs that no output depends on.
  // Call it before rest().
  std::vector<DistTensor> first() const;
  // Does the second part, and returns the cotangents of `later`. If `complete`
  // is set, calls it with them instead, and returns an empty list. Call rest()
  // once.
  std::vector<DistTensor> rest(const Complete& = {});

 private:
  class Pass;
  std::unique_ptr<Pass> pass_;
};

}  // namespace dtensor
