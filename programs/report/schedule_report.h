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
  std::optional<double> formula;  // the theoretical bubble (bubble_formula())
};

// Simulates the schedule with the same times for every stage. REQUIRES: the
// schedule is from checked().
ScheduleReport schedule_report(nn::PipelineSchedule, const nn::StageTimes&);

// A title: "interleaved: 4 positions of 2 chunks, 8 micro-batches".
std::string title(const nn::PipelineSchedule&);

// The simulated bubble next to the formula: "27.3 %, equal to the formula".
std::string bubble_text(const ScheduleReport&);

// The schedule as text: a line for each position, with each task in its slot.
std::string to_text(const ScheduleReport&);
nlohmann::ordered_json to_json(const ScheduleReport&);

}  // namespace dtensor::report
