// SPDX-License-Identifier: Apache-2.0
// Reports the schedule of a pipeline, as text and JSON (schedule_svg.h draws
// it).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "dtensor/nn/pipeline_schedule.h"

namespace dtensor::report {

struct ScheduleReport {
  nn::PipelineSchedule schedule;
  nn::PipelineSimulation run;
  std::optional<double> formula;  // the bubble in theory (bubble_formula())
};

// Simulates the schedule; every stage takes these times. REQUIRES: a checked
// schedule.
ScheduleReport schedule_report(nn::PipelineSchedule, const nn::StageTimes&);

// "interleaved: 4 positions of 2 chunks, 8 micro-batches".
std::string title(const nn::PipelineSchedule&);

// The bubble next to its formula: "27.3 %, equal to the formula".
std::string bubble_text(const ScheduleReport&);

// A line for each position, with its tasks in their slots.
std::string to_text(const ScheduleReport&);
nlohmann::ordered_json to_json(const ScheduleReport&);

}  // namespace dtensor::report
