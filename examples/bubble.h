// How much of a step the ranks of a pipeline wait for each other.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/pipeline_times.h"
#include "examples/train_config.h"

namespace dtensor::examples {

// Idle shares of the position that is at it longest (PipelineSimulation::span).
struct BubbleReport {
  std::optional<double> formula;  // of stages that all take the same time
  double simulated = 0;           // with the stages' prices (nn::stage_times)
  std::optional<double> measured;
};
// `measured`: what BubbleMeter::longest() says, nothing in a dry run.
// REQUIRES: an axis pp.
BubbleReport bubble_report(const TrainConfig&, const Mesh&,
                           const nn::PipelineTimes& measured = {});
nlohmann::ordered_json bubble_json(const BubbleReport&);
std::string bubble_text(const BubbleReport&);

// Of a rank's steps but the first, which makes all plans.
class BubbleMeter {
 public:
  // What the rank did in a step: PipelineResult::tasks.
  void add(const std::vector<TimedTask>&);
  // Of the rank that was at it longest, in all of them. Collective.
  nn::PipelineTimes longest() const;

 private:
  std::vector<nn::PipelineTimes> steps_;
};

}  // namespace dtensor::examples
