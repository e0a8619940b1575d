// SPDX-License-Identifier: Apache-2.0
// Notifies the observers of a call: the checkpoint() that runs the function
// around it (grad.h), op_trace(), the rank's recorder (op_recorder.h), and the
// timeline of the run (trace.h). Private to ops.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/op.h"

namespace dtensor {

class OpWatch {
 public:
  // Tells the checkpoint(), if there is one, that the call uses these inputs.
  // REQUIRES: the arguments outlive this object.
  OpWatch(RankContext&, const Op&, std::span<const DistTensor> given);
  // The checkpoint()'s observer, if it has kept the outputs of this call; null
  // if the call must compute them.
  OpCaptures* kept() const { return kept_; }
  // Tells the observers that the call has run. op_trace() and the recorder are
  // not told if its outputs had been kept. Increments RankContext::ordinal, the
  // number of calls in the current PathScope.
  void ran(const Attrs&, const Decision&, std::span<const DistTensor> outputs);

 private:
  // Tells the recorder. It is a function of its own, so that ran(), which every
  // call of an operator runs, stays short.
  [[gnu::noinline, gnu::cold]] void record(
      const Attrs&, const Decision&, std::span<const DistTensor> outputs) const;
  RankContext& ctx_;
  const Op& op_;
  const std::span<const DistTensor> given_;
  OpCaptures* const captures_;
  OpCaptures* kept_ = nullptr;
  const int64_t begin_;  // when the call began, for the timeline
  // The index of the call's first event, for the recorder.
  const size_t first_event_;
};

}  // namespace dtensor
