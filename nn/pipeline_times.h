// How long the ranks of a pipeline are at it, and how much of that they work.
#pragma once
#include <vector>

#include "dtensor/placement/pipeline_simulation.h"

namespace dtensor::nn {

// Of a rank, in seconds: from its first task's start to its last one's finish,
// and in tasks. The rest it waits.
struct PipelineTimes {
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
};

// Of what Pipeline::run() says that a rank did; 0 where it did nothing.
PipelineTimes pipeline_times(const std::vector<TimedTask>&);

// Of the rank that is at it longest (as PipelineSimulation::span). Collective
// over all ranks of the run.
PipelineTimes longest(const PipelineTimes& mine);

}  // namespace dtensor::nn
