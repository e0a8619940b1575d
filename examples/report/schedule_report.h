// What a pipeline's schedule does when, as text and JSON. (schedule_svg.h: as a
// picture.)
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "dtensor/placement/pipeline_simulation.h"

namespace dtensor::report {

struct ScheduleReport {
  PipelineSchedule schedule;
  PipelineSimulation run;
  std::optional<double> formula;  // of the bubble
};

// Simulated, each stage with these times. REQUIRES: a checked schedule.
ScheduleReport schedule_report(PipelineSchedule, const StageTimes&);

// "interleaved: 4 positions of 2 chunks, 8 micro-batches".
std::string title(const PipelineSchedule&);

// "27.3 %, as the formula says": the bubble next to its formula.
std::string bubble_text(const ScheduleReport&);

// A line for each position, with its tasks in their slots.
std::string to_text(const ScheduleReport&);
nlohmann::ordered_json to_json(const ScheduleReport&);

}  // namespace dtensor::report
