// SPDX-License-Identifier: Apache-2.0
#include "programs/bubble.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "dtensor/nn/pipeline_model.h"

namespace dtensor::examples {

BubbleReport bubble_report(const TrainConfig& config, const Mesh& mesh,
                           const nn::PipelineTimes& measured) {
  const nn::PipelineSchedule& s = config.pipeline();
  BubbleReport report;
  report.formula = bubble_formula(s);
  report.simulated =
      simulate(s,
               nn::stage_times(config.model,
                               nn::cut_pipeline(config.model, mesh, s.chunks)))
          .bubble();
  if (measured.span > 0) report.measured = measured.bubble();
  return report;
}

nlohmann::ordered_json bubble_json(const BubbleReport& r) {
  const auto number = [](const std::optional<double>& x) {
    return x ? nlohmann::ordered_json(*x) : nlohmann::ordered_json(nullptr);
  };
  return {{"formula", number(r.formula)},
          {"simulated", r.simulated},
          {"measured", number(r.measured)}};
}

std::string bubble_text(const BubbleReport& r) {
  const auto percent = [](const std::optional<double>& x) {
    return x ? fmt::format("{:.1f} %", 100 * *x) : std::string("none");
  };
  return fmt::format(
      "bubble: formula {}, simulated {}, measured {} (if ranks share cores, "
      "their work includes waiting for a core)",
      percent(r.formula), percent(r.simulated), percent(r.measured));
}

}  // namespace dtensor::examples
