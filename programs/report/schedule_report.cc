// SPDX-License-Identifier: Apache-2.0
#include "programs/report/schedule_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor::report {

ScheduleReport schedule_report(nn::PipelineSchedule s,
                               const nn::StageTimes& times) {
  ScheduleReport r{{}, simulate(s, {times}), bubble_formula(s, times)};
  r.schedule = std::move(s);
  return r;
}

std::string title(const nn::PipelineSchedule& s) {
  const std::string chunks =
      s.chunks > 1 ? fmt::format(" of {} chunks", s.chunks) : "";
  return fmt::format("{}: {} positions{}, {} micro-batches", s.name,
                     s.positions, chunks, s.micros);
}

std::string bubble_text(const ScheduleReport& r) {
  const double bubble = r.run.bubble();
  if (!r.formula) return fmt::format("{:.1f} %", 100 * bubble);
  if (std::abs(bubble - *r.formula) < 1e-9)
    return fmt::format("{:.1f} %, equal to the formula", 100 * bubble);
  return fmt::format("{:.1f} %, formula {:.1f} %", 100 * bubble,
                     100 * *r.formula);
}

std::string to_text(const ScheduleReport& r) {
  const nn::PipelineSchedule& s = r.schedule;
  size_t width = 0;
  for (const auto& list : s.tasks)
    for (const nn::PipelineTask& t : list)
      width = std::max(width, short_name(t, s).size());
  std::string text = title(s) + "\n";
  const auto label = std::to_string(s.positions - 1).size();
  for (size_t p = 0; p < s.tasks.size(); ++p) {
    text += fmt::format("{:>{}}", p, label);
    int64_t slot = 0;
    for (const nn::PipelineTask& t : s.tasks[p]) {
      for (; slot < t.slot; ++slot) text += std::string(width + 1, ' ');
      text += fmt::format(" {:<{}}", short_name(t, s), width);
      ++slot;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  text += fmt::format("bubble {}\nmicro-batches held at most: {}\n",
                      bubble_text(r), fmt::join(r.run.live, ", "));
  return text;
}

nlohmann::ordered_json to_json(const ScheduleReport& r) {
  const nn::PipelineSchedule& s = r.schedule;
  nlohmann::ordered_json json = {
      {"schedule", s.name},
      {"positions", s.positions},
      {"chunks", s.chunks},
      {"micro_batches", s.micros},
      {"makespan", r.run.makespan},
      {"live_micro_batches", r.run.live},
      {"peak_live_micro_batches", r.run.peak_live()}};
  json["bubble"]["formula"] =
      r.formula ? nlohmann::ordered_json(*r.formula) : nullptr;
  json["bubble"]["simulated"] = r.run.bubble();
  json["tasks"] = nlohmann::ordered_json::array();
  for (const auto& list : r.run.tasks)
    for (const nn::TimedTask& t : list)
      json["tasks"].push_back({{"stage", t.task.stage},
                               {"slot", t.task.slot},
                               {"micro_batch", t.task.micro},
                               {"kind", name(t.task.work)},
                               {"start", t.start},
                               {"finish", t.finish}});
  return json;
}

}  // namespace dtensor::report
