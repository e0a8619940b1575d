// SPDX-License-Identifier: Apache-2.0
// The share of a step in which the ranks of a pipeline wait for each other.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "dtensor/nn/pipeline.h"
#include "programs/train_config.h"

namespace dtensor::examples {

// The bubble as a share from 0 to 1, at the position of the pipeline that takes
// longest from its first task to its last (PipelineSimulation::span).
struct BubbleReport {
  std::optional<double> formula;  // if all stages take the same time
  double simulated = 0;           // if stages take their nn::stage_times()
  std::optional<double> measured;
};
// `measured` is TrainingReport::pipeline; the default means that nothing was
// measured. REQUIRES: the mesh has an axis pp.
BubbleReport bubble_report(const TrainConfig&, const Mesh&,
                           const nn::PipelineTimes& measured = {});
nlohmann::ordered_json bubble_json(const BubbleReport&);
std::string bubble_text(const BubbleReport&);

}  // namespace dtensor::examples
