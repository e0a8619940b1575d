// SPDX-License-Identifier: Apache-2.0
// Draws a plan.
#pragma once
#include <string>

#include "programs/report/plan_report.h"

namespace dtensor::report {

// Returns an SVG file's content. For each step it shows the tensor before and
// after, in boxes coloured by the ranks that hold them, and a table of the
// bytes that ranks send to each other. Of a tensor with more than two
// dimensions it shows two at the first index of the others, and says so; more
// than 16 ranks share colours and rows. REQUIRES: the report lists its ranks.
std::string plan_svg(const PlanReport&);

}  // namespace dtensor::report
