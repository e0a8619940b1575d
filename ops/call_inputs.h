// SPDX-License-Identifier: Apache-2.0
// Brings the inputs of a call from the tensors that the caller passed to the
// parts that the operator computes on.
#pragma once
#include <span>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/compute.h"
#include "dtensor/placement/inline_vec.h"
#include "dtensor/rank_context.h"

namespace dtensor {

class CallInputs {
 public:
  // `known`: checkpoint() (grad.h) has kept the call's outputs. Only a gradient
  // may then read the inputs.
  CallInputs(RankContext&, std::span<const DistTensor> given, bool known);
  CallInputs(const CallInputs&) = delete;
  CallInputs& operator=(const CallInputs&) = delete;

  // The inputs as the operator sees them; decide() gets their specs. A
  // parameter that is gathered on use (gather.h) is seen in the gathered
  // layout.
  std::span<const DistTensor> seen() const { return seen_; }
  // Gathers the parameters that are gathered on use, moves all inputs to the
  // layouts of c.decision, and returns false. But if one input can be read in
  // place from other ranks (in_boxes.h), runs the operator's compute(), which
  // sets c.out, and returns true. `record`: there will be a gradient.
  bool bring(Compute& c, bool record);
  // Only moves the inputs, for the gradient of a call whose outputs are known.
  void move(const Op&, const Decision&);
  // The inputs in the decided layouts, once move() has run or bring() has
  // returned false. Before that, the same as seen().
  std::span<const DistTensor> ready() const { return ready_; }
  // Frees the gathered copies that no gradient will need.
  void free();

 private:
  void check_allowed(const Op&, const Decision&) const;
  void relayout_all(const Decision&);

  RankContext& ctx_;
  const std::span<const DistTensor> given_;
  bool gathered_;  // whether an input is gathered on use
  InlineVec<DistTensor, Compute::kMostInputs> own_, moved_;
  std::span<const DistTensor> seen_, ready_;
};

}  // namespace dtensor
