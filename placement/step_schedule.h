// SPDX-License-Identifier: Apache-2.0
// A rank's schedule for one step of a plan: the pieces that it reads, and the
// ranks that have them.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/schedule.h"

namespace dtensor {

// The world ranks that take part in a step together with `world_rank`: those
// that differ from it only in step.axes, row-major; between two meshes all
// ranks of either, ascending. Empty if `world_rank` takes no part.
std::vector<int64_t> members(const Step&, int64_t world_rank);

// The schedule of a step that sends (but not of an all-reduce), for a rank that
// takes part. If `panel` is given (one ascending list for each dimension),
// sources and destination count only within it. Takes time proportional to the
// members that the rank reads from, plus, for each dimension, the parts that
// the group's axes cut it into. (Each other member costs only an empty entry of
// `has` and, between two meshes, an entry of members().)
//
// If several members have an index, those across the cheapest axes serve it,
// since the plan leaves more expensive axes out of step.axes. Of these members,
// the rank itself comes first. Otherwise the receivers of one index take turns
// among its holders, and start at different holders for different indices, so
// that all holders send about equally much. In a reduction, each term comes
// from one member, and the schedule's `terms` is the number of parts that the
// step combines. (sum, count) pairs have one more, leading dimension of 2, also
// in the panel. Throws Error if the step is an all-reduce or sends nothing, or
// if the rank takes no part.
Schedule schedule(const Step&, int64_t world_rank, const Region& panel = {});

// Fills `serves` of a schedule that schedule() made, and the rank's own entry
// of `has`. Takes time proportional to the number of members and to the pieces
// that they take from this rank, not to all pieces that they want.
void serve(Schedule&, const Step&, int64_t world_rank,
           const Region& panel = {});

}  // namespace dtensor
