#include "examples/bubble.h"

#include <array>
#include <nlohmann/json.hpp>

#include "dtensor/nn/pipeline_model.h"
#include "dtensor/runtime/all_gather_bytes.h"

namespace dtensor::examples {

BubbleReport bubble_report(const TrainConfig& config, const Mesh& mesh,
                           std::span<const double> measured) {
  const PipelineSchedule& s = config.pipeline();
  BubbleReport report;
  report.formula = bubble_formula(s);
  report.simulated =
      simulate(s,
               nn::stage_times(config.model,
                               nn::cut_pipeline(config.model, mesh, s.chunks)))
          .bubble();
  double longest = 0;
  for (size_t i = 0; i + 1 < measured.size(); i += 2) {
    if (measured[i] <= longest) continue;
    longest = measured[i];
    report.measured = 1 - measured[i + 1] / longest;
  }
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
      "bubble: formula {}, simulated {}, measured {} (ranks that share cores "
      "wait for them in their work)",
      percent(r.formula), percent(r.simulated), percent(r.measured));
}

void BubbleMeter::add(const std::vector<TimedTask>& tasks) {
  if (tasks.empty()) return;
  spans_.push_back(tasks.back().finish - tasks.front().start);
  double busy = 0;
  for (const TimedTask& t : tasks) busy += t.finish - t.start;
  busy_.push_back(busy);
}

std::vector<double> BubbleMeter::of_all_ranks() const {
  std::array<double, 2> mine = {0, 0};
  for (size_t i = spans_.size() > 1 ? 1 : 0; i < spans_.size(); ++i) {
    mine[0] += spans_[i];
    mine[1] += busy_[i];
  }
  std::vector<double> all;
  for (const auto& [span, busy] : all_gather("bubble", mine)) {
    all.push_back(span);
    all.push_back(busy);
  }
  return all;
}

}  // namespace dtensor::examples
