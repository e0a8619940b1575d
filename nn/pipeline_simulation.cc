// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/nn/pipeline_schedule.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {

double StageTimes::of(const PipelineTask& t, const PipelineSchedule& s) const {
  if (t.work == PipelineWork::kForward) return forward;
  if (t.work == PipelineWork::kWeight) return weight;
  return s.weight_tasks ? backward : backward + weight;
}

int64_t PipelineSimulation::peak_live() const {
  return *std::max_element(live.begin(), live.end());
}

PipelineSimulation simulate(const PipelineSchedule& s,
                            const std::vector<StageTimes>& times) {
  DT_CHECK(
      times.size() == 1 || static_cast<int64_t>(times.size()) == s.stages(),
      "pipeline",
      "there are times for {} stages, but the schedule has {}; write one for "
      "all stages, or one for each",
      times.size(), s.stages());
  for (const StageTimes& t : times)
    DT_CHECK(t.forward >= 0 && t.backward >= 0 && t.weight >= 0, "pipeline",
             "times[{}] has forward {}, backward {} and weight {}; write times "
             "of at least 0",
             &t - times.data(), t.forward, t.backward, t.weight);
  // In the order of the slots, a task comes after all tasks that it needs.
  std::vector<PipelineTask> order;
  for (const auto& list : s.tasks)
    order.insert(order.end(), list.begin(), list.end());
  std::stable_sort(
      order.begin(), order.end(),
      [](const auto& a, const auto& b) { return a.slot < b.slot; });
  const auto place = [&](const PipelineTask& t) {
    return static_cast<size_t>(
        (static_cast<int64_t>(t.work) * s.stages() + t.stage) * s.micros +
        t.micro);
  };
  std::vector<double> finish(static_cast<size_t>(3 * s.stages() * s.micros));
  const auto p = static_cast<size_t>(s.positions);
  PipelineSimulation result;
  result.tasks.resize(p);
  result.live.resize(p);
  std::vector<double> free(p), busy(p);
  std::vector<int64_t> live(p);
  for (const PipelineTask& t : order) {
    const auto r = static_cast<size_t>(s.position(t.stage));
    double start = free[r];
    for (const PipelineTask& n : needs(t, s))
      start = std::max(start, finish[place(n)]);
    const double takes =
        times[times.size() == 1 ? 0 : static_cast<size_t>(t.stage)].of(t, s);
    free[r] = finish[place(t)] = start + takes;
    busy[r] += takes;
    result.tasks[r].push_back({t, start, start + takes});
    if (t.work == PipelineWork::kForward)
      result.live[r] = std::max(result.live[r], ++live[r]);
    else if (t.work == PipelineWork::kWeight || !s.weight_tasks)
      --live[r];
  }
  for (size_t r = 0; r < p; ++r) {
    result.makespan = std::max(result.makespan, free[r]);
    const double span = free[r] - result.tasks[r].front().start;
    if (r > 0 && span <= result.span) continue;
    result.span = span;
    result.busy = busy[r];
  }
  return result;
}

std::optional<double> bubble_formula(const PipelineSchedule& s,
                                     const StageTimes& t) {
  const auto ahead = static_cast<double>(s.positions - 1);
  const double all = t.forward + t.backward + t.weight;
  double idle = ahead * all;
  if (s.name == "zb-h1" || s.name == "zb-h2") {
    const double filled = s.name == "zb-h1" ? ahead : 2 * ahead;
    idle = ahead * (t.forward + t.backward) -
           std::min(static_cast<double>(s.micros - 1), filled) * t.weight;
  } else if (s.name != "gpipe" && s.name != "1f1b" && s.name != "interleaved") {
    return std::nullopt;
  }
  idle = std::max(idle, 0.0);
  const double busy = static_cast<double>(s.micros * s.chunks) * all;
  return busy + idle > 0 ? idle / (busy + idle) : 0;
}

}  // namespace dtensor::nn
