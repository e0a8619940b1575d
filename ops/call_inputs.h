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
  // Gathers the parameters that are gathered on use, unless the outputs are
  // known, and moves all inputs to the layouts of the decision.
  void bring(const Op&, const Decision&);
  // The inputs in the decided layouts, once bring() has run. Before that, the
  // same as seen().
  std::span<const DistTensor> ready() const { return ready_; }
  // Frees the gathered copies that no gradient will need.
  void free();

 private:
  void check_allowed(const Op&, const Decision&) const;

  RankContext& ctx_;
  const std::span<const DistTensor> given_;
  const bool gathered_;  // whether an input is gathered on use
  const bool known_;
  InlineVec<DistTensor, Compute::kMostInputs> own_, moved_;
  std::span<const DistTensor> seen_, ready_;
};

}  // namespace dtensor
