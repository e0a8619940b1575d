// A picture of a pipeline's schedule: a line for each position, time to the
// right, in at most 20,000 px.
#pragma once
#include <string>

#include "examples/report/schedule_report.h"

namespace dtensor::report {

std::string schedule_svg(const ScheduleReport&);

}  // namespace dtensor::report
