// SPDX-License-Identifier: Apache-2.0
// Carries out plans on local parts.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/execution.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/tensor.h"

namespace dtensor {

// Returns the boxes in the group members' memory from which execute() would
// gather this rank's part of tensor number `tensor`. Empty unless the execution
// is a single all-gather and this rank can read the other members' memory.
std::vector<SourceBox> boxes_in_place(RankContext&, const Execution&,
                                      size_t tensor);
// Makes execute() read tensor number `which` in place instead of gathering it:
// once the other parts are complete, execute() calls read() with every member's
// source of that tensor, and leaves parts[which] undefined. The sources stay
// valid and unchanged until read() returns. REQUIRES: boxes_in_place() is not
// empty for that tensor.
struct ReadInPlace {
  size_t which;
  const Communicator::ReadSources& read;
};

// Replaces each part, which is in the layout of its move's source, by the part
// in the layout of the destination. A part is undefined on ranks outside the
// source's mesh; the caller drops the result on ranks outside the destination's
// mesh. Collective over the groups of the plan's steps. If the rank records,
// adds one event per collective and tensor. If the plan only slices, the result
// is a view; it is a copy if this rank's part is empty or consists of several
// boxes, before or after. With `consume`, execute() may overwrite parts whose
// memory nothing else refers to.
void execute(RankContext&, const Execution&, std::span<Tensor> parts,
             bool consume = false, const ReadInPlace* in_place = nullptr);

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
