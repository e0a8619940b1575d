// The time of training steps, measured and by prices.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/rank_context.h"

namespace dtensor::examples {

// The median time of the steps, without the first two, which warm up. REQUIRES:
// there is a step.
double typical(std::vector<double> step_seconds);
// Tokens per second of steps with `tokens` tokens, by their typical() time.
double tokens_per_second(std::vector<double> step_seconds, int64_t tokens);

// The time in ps that a step's collectives take on the rank where they take
// longest, from merged events (comm_table.h). Tensors that are moved together
// in one collective pay its latency once.
int64_t communication_ps(std::span<const CommEvent> merged, const CostTable&);

}  // namespace dtensor::examples
