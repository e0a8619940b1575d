// SPDX-License-Identifier: Apache-2.0
#include "dtensor/all_gather_bytes.h"
#include "dtensor/nn/pipeline.h"

namespace dtensor::nn {

PipelineTimes pipeline_times(const std::vector<TimedTask>& tasks) {
  PipelineTimes times;
  if (tasks.empty()) return times;
  times.span = tasks.back().finish - tasks.front().start;
  for (const TimedTask& t : tasks) times.busy += t.finish - t.start;
  return times;
}

PipelineTimes longest(const PipelineTimes& mine) {
  PipelineTimes most;
  for (const PipelineTimes& t : all_gather("pipeline times", mine))
    if (t.span > most.span) most = t;
  return most;
}

}  // namespace dtensor::nn
