// SPDX-License-Identifier: Apache-2.0
// The observers of a call: the recomputation that it belongs to (grad.h),
// op_trace(), and the timeline of the run (trace.h). Private to ops.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/op.h"

namespace dtensor {

class OpWatch {
 public:
  // Tells the recomputation which inputs are used. REQUIRES: the arguments
  // outlive it.
  OpWatch(RankContext&, const Op&, std::span<const DistTensor> given);
  // The recomputation that has kept the outputs of this call; null if none has.
  OpCaptures* kept() const { return kept_; }
  // Tells all that the call has run. Advances the rank's ordinal.
  void ran(const Attrs&, const Decision&, std::span<const DistTensor> outputs);

 private:
  // Kept out of ran(), which every call of an operator makes.
  [[gnu::noinline, gnu::cold]] void record(
      const Attrs&, const Decision&, std::span<const DistTensor> outputs) const;
  RankContext& ctx_;
  const Op& op_;
  const std::span<const DistTensor> given_;
  OpCaptures* const captures_;
  OpCaptures* kept_ = nullptr;
  const int64_t begin_;       // of the call, for the timeline
  const size_t first_event_;  // of the call, for the recorder
};

}  // namespace dtensor
