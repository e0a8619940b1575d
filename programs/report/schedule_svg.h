// SPDX-License-Identifier: Apache-2.0
// Draws a pipeline's schedule: a line for each position, with time to the
// right. A picture is at most 20,000 px wide.
#pragma once
#include <string>

#include "programs/report/schedule_report.h"

namespace dtensor::report {

// Returns an SVG file's content.
std::string schedule_svg(const ScheduleReport&);

}  // namespace dtensor::report
