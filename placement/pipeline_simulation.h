// How long a pipeline's schedule takes, how much of it ranks wait, and how much
// they hold.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "dtensor/placement/pipeline_schedule.h"

namespace dtensor {

// Of a stage, in any unit of time. Where a schedule has no weight tasks, a
// backward takes backward + weight.
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
  // Of the position that is at it longest, from its first task's start to its
  // last one's finish; and of that time, what it computes. The rest is the
  // bubble: Qi et al. measure so, since a position that starts later may end
  // its step later.
  double span = 0, busy = 0;
  double bubble() const { return span > 0 ? 1 - busy / span : 0; }
  // By position: micro-batches (of each of its stages) that have gone forward
  // and whose last task there is not done, at most.
  std::vector<int64_t> live;
  int64_t peak_live() const;
};

// Every position does its tasks in order, each as soon as it can. `times`: one
// for all stages, or one for each. Throws Error for another number of them, or
// negative ones. REQUIRES: a checked schedule.
PipelineSimulation simulate(const PipelineSchedule&,
                            const std::vector<StageTimes>& times = {{}});

// The bubble's share of a step in theory, idle / (idle + V m (F + B + W)), when
// all stages take the same times F, B, W and nothing is lost on the way; of m
// micro-batches, p positions, V chunks. Idle is
//   gpipe, 1f1b, interleaved   (p - 1) (F + B + W)
//   zb-h1                      (p - 1) (F + B) - min(p - 1, m - 1) W
//   zb-h2                      (p - 1) (F + B) - min(2 p - 2, m - 1) W
// (Narayanan et al., 2104.04473, section 2; Qi et al., 2401.10241, table 2,
// whose m is large. The last two where F, B and W are equal; with others they
// are what an order made for these times reaches.) None for a table of the
// user's.
std::optional<double> bubble_formula(const PipelineSchedule&,
                                     const StageTimes& = {});

}  // namespace dtensor
