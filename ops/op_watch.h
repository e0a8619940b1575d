// SPDX-License-Identifier: Apache-2.0
// Notifies the checkpoint() that runs the function around a call (grad.h), and
// the rank's observers (observer.h), that the call has run. Private to ops.
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
  // Tells the checkpoint(), if there is one, that the layouts have been chosen.
  void decided(const Attrs&, const Decision&);
  // Tells that the call has run. Increments RankContext::ordinal, the number of
  // calls in the current PathScope.
  void ran(const Attrs&, const Decision&, std::span<const DistTensor> outputs);

 private:
  // Tells the observers. It is a function of its own, so that ran(), which
  // every call of an operator runs, stays short.
  [[gnu::noinline, gnu::cold]] void tell(const Attrs&, const Decision&,
                                         std::span<const DistTensor> outputs,
                                         int64_t ordinal) const;
  RankContext& ctx_;
  const Op& op_;
  const std::span<const DistTensor> given_;
  OpCaptures* const captures_;
  OpCaptures* kept_ = nullptr;
  // When the call began, and the index of its first event; for the observers.
  const int64_t begin_;
  const size_t first_event_;
};

}  // namespace dtensor
