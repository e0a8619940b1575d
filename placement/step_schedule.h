// What a rank reads from whom in one step of a plan.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/schedule.h"

namespace dtensor {

// The ranks of the run that take part in a step together with `world_rank`:
// those that differ from it in step.axes alone, row-major; between two meshes
// the ranks of either, ascending. Empty when it takes no part.
std::vector<int64_t> members(const Step&, int64_t world_rank);

// The schedule of a step that sends (not of an all-reduce) for a rank that
// takes part, of the indices inside `panel` alone (one ascending list per
// dimension; empty: all): sources and destination are then what lies inside.
// Costs time in the order of the members that it reads from, plus, for each
// dimension, of the parts that the group's axes cut it into.
//
// Where several members have what a rank needs, the nearest by axis price
// serve: the plan leaves dearer axes out of step.axes. Of those left, this rank
// itself; else the receivers of one index take turns among those that hold it,
// starting at another one for other indices, so that all send alike. Each term
// of a reduction comes from one member. `terms` is the number of parts that
// the step combines. (sum, count) pairs have one more, leading dimension of 2,
// also in the panel.
Schedule schedule(const Step&, int64_t world_rank, const Region& panel = {});

// Fills `serves` of that schedule, and what this rank has. Costs time in the
// order of the group's members and of what they take, not of all that they ask
// for.
void serve(Schedule&, const Step&, int64_t world_rank,
           const Region& panel = {});

}  // namespace dtensor
