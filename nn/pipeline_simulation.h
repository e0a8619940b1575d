// Simulates a pipeline's schedule: how long it takes, how long ranks wait, and
// how many micro-batches they hold.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/nn/pipeline_schedule.h"

namespace dtensor::nn {

// The times of a stage's tasks, in any unit. In a schedule without weight
// tasks, a backward takes backward + weight.
struct StageTimes {
  double forward = 1, backward = 1, weight = 1;
  double of(const PipelineTask&, const PipelineSchedule&) const;
};

struct TimedTask {
  PipelineTask task;
  double start, finish;
};

struct PipelineSimulation {
  std::vector<std::vector<TimedTask>> tasks;  // by position, in order
  double makespan = 0;                        // until the last task is finished
  // The longest time that any position takes from its first task's start to its
  // last task's finish; and the time that this position computes. The rest is
  // the bubble. Qi et al. measure it this way, since a position that starts
  // later may end its step later.
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
  // By position: the most micro-batches (counted for each of its stages) that
  // are live at a time, from their forward to the end of their last task there.
  std::vector<int64_t> live;
  int64_t peak_live() const;
};

// Every position does its tasks in order, each as soon as it can. `times` has
// one entry for all stages or one for each. Throws Error if it has another
// number of entries or a negative time. REQUIRES: a schedule from checked().
PipelineSimulation simulate(const PipelineSchedule&,
                            const std::vector<StageTimes>& times = {{}});

// The theoretical share of the bubble in a step, idle / (idle + V m (F + B +
// W)), if all stages take the same times F, B, W and sending takes none; with m
// micro-batches, p positions, V chunks. The idle time is
//   gpipe, 1f1b, interleaved   (p - 1) (F + B + W)
//   zb-h1                      (p - 1) (F + B) - min(p - 1, m - 1) W
//   zb-h2                      (p - 1) (F + B) - min(2 p - 2, m - 1) W
// (Narayanan et al., 2104.04473, section 2; Qi et al., 2401.10241, table 2, for
// large m. The last two hold for our schedules if F, B and W are equal; for
// other times, an order made for these times reaches them.) nullopt for other
// names, such as a schedule from a file.
std::optional<double> bubble_formula(const PipelineSchedule&,
                                     const StageTimes& = {});

}  // namespace dtensor::nn
