// How long training steps take: measured, and by their prices.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/rank_context.h"

namespace dtensor::examples {

// Of what each step took: the median over the steps after the first two, which
// warm up. REQUIRES: there is a step.
double typical(std::vector<double> step_seconds);
// Of steps of so many tokens, by the typical one.
double tokens_per_second(std::vector<double> step_seconds, int64_t tokens);

// What a step's collectives take of the rank that is at them longest, from
// merged events (comm_table.h). Tensors that move in one pay its latency once,
// each time that it is made.
int64_t communication_ps(std::span<const CommEvent> merged, const CostTable&);

}  // namespace dtensor::examples
