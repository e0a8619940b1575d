// How much of a step the ranks of a pipeline wait for each other.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/pipeline_simulation.h"
#include "examples/train_config.h"

namespace dtensor::examples {

// Idle shares of the position that is at it longest (PipelineSimulation::span).
struct BubbleReport {
  std::optional<double> formula;  // of stages that all take the same time
  double simulated = 0;           // with the stages' prices (nn::stage_times)
  std::optional<double> measured;
};
// `measured`: what BubbleMeter::of_all_ranks() says, empty in a dry run.
// REQUIRES: an axis pp.
BubbleReport bubble_report(const TrainConfig&, const Mesh&,
                           std::span<const double> measured);
nlohmann::ordered_json bubble_json(const BubbleReport&);
std::string bubble_text(const BubbleReport&);

// Of a rank's steps but the first, which makes all plans.
class BubbleMeter {
 public:
  // What the rank did in a step: PipelineResult::tasks.
  void add(const std::vector<TimedTask>&);
  // Of each rank, {span, busy}, one after the other, in seconds. Collective.
  std::vector<double> of_all_ranks() const;

 private:
  std::vector<double> spans_, busy_;
};

}  // namespace dtensor::examples
