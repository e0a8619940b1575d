// SPDX-License-Identifier: Apache-2.0
// The bytes that the members of a step send each other, from their schedules.
#pragma once
#include <cstdint>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/schedule.h"

namespace dtensor::testing {

// The exact number of bytes that one rank sends and receives in a step.
struct Traffic {
  int64_t sent = 0, received = 0;
  bool operator==(const Traffic&) const = default;
};
// The traffic of every member of the rank's group, in the group's order. Empty
// for a step that sends nothing. Makes the schedules of all members.
std::vector<Traffic> group_traffic(const Step&, int64_t world_rank);
Traffic traffic(const Step&, int64_t world_rank);

// The number of elements that come from other members.
int64_t received(const Schedule&);

}  // namespace dtensor::testing
