// SPDX-License-Identifier: Apache-2.0
// Carries out plans on local parts.
#pragma once
#include <span>

#include "dtensor/execution.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Replaces each part, which is in the layout of its move's source, by the part
// in the layout of the destination. Converts it to the move's types. A part is
// undefined on ranks outside the source's mesh; the caller drops the result on
// ranks outside the destination's mesh. Collective over the groups of the
// plan's steps. If the rank records, adds one event per collective and tensor.
// If the plan only slices, the result is a view; it is a copy if this rank's
// part is empty or consists of several boxes, before or after. With `consume`,
// execute() may overwrite parts if nothing else refers to their memory.
void execute(RankContext&, const Execution&, std::span<Tensor> parts,
             bool consume = false);

// Called after events have been added to RankContext::events. If the list is
// long, sums the events up, unless a CommRecord or an observer still needs
// each of them (see ~CommRecord()).
inline void bound_record(const RankContext& ctx) {
  constexpr size_t kLong = 4096;
  if (ctx.record && ctx.events.size() >= kLong &&
      !ctx.observers.read_events(ctx))
    CommRecord();
}

}  // namespace dtensor
