// The time that ranks of a pipeline spend in a step, and how much of it they
// compute.
#pragma once
#include <vector>

#include "dtensor/nn/pipeline_simulation.h"

namespace dtensor::nn {

// Times of one rank, in seconds: `span` from the start of its first task to the
// end of its last one, and `busy` in tasks. In the rest it waits.
struct PipelineTimes {
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
};

// The times from PipelineResult::tasks; zeros if the rank ran no task.
PipelineTimes pipeline_times(const std::vector<TimedTask>&);

// The times of the rank with the longest span (as PipelineSimulation::span).
// Collective over all ranks of the run.
PipelineTimes longest(const PipelineTimes& mine);

}  // namespace dtensor::nn
