// The share of a step in which the ranks of a pipeline wait for each other.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/pipeline_times.h"
#include "examples/train_config.h"

namespace dtensor::examples {

// Idle shares (0 to 1) of the position with the longest span
// (PipelineSimulation::span).
struct BubbleReport {
  std::optional<double> formula;  // if all stages take the same time
  double simulated = 0;           // with the times of nn::stage_times()
  std::optional<double> measured;
};
// `measured` is BubbleMeter::longest(); by default nothing was measured.
// REQUIRES: the mesh has an axis pp.
BubbleReport bubble_report(const TrainConfig&, const Mesh&,
                           const nn::PipelineTimes& measured = {});
nlohmann::ordered_json bubble_json(const BubbleReport&);
std::string bubble_text(const BubbleReport&);

// Measures one rank's steps, except the first, which makes all plans.
class BubbleMeter {
 public:
  // Adds a step of the rank.
  void add(const nn::PipelineTimes& step) { steps_.push_back(step); }
  // The times of the rank with the longest span, summed over its steps.
  // Collective over all ranks of the run.
  nn::PipelineTimes longest() const;

 private:
  std::vector<nn::PipelineTimes> steps_;
};

}  // namespace dtensor::examples
