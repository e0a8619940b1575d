// SPDX-License-Identifier: Apache-2.0
// What the members of a step send each other, from their schedules.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor::testing {

// What one rank sends and receives in a step (bytes), exactly.
struct Traffic {
  int64_t sent = 0, received = 0;
  bool operator==(const Traffic&) const = default;
};
// Of every member of the rank's group, in their order; empty for a step that
// sends nothing. Costs every member's schedule.
std::vector<Traffic> group_traffic(const Step&, int64_t world_rank);
Traffic traffic(const Step&, int64_t world_rank);

}  // namespace dtensor::testing
