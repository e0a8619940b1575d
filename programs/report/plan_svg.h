// SPDX-License-Identifier: Apache-2.0
// Draws a plan step by step.
#pragma once
#include <string>

#include "programs/report/plan_report.h"

namespace dtensor::report {

// Returns an SVG file's content. For each step, it shows the tensor before and
// after, in boxes coloured by the ranks that hold them, and, if the report has
// the step's flows, a matrix of the bytes that ranks send to each other. If a
// tensor has more than two dimensions, the picture shows two of them at the
// first index of the others, and says so. If there are more than 16 ranks,
// several share a colour and a row. REQUIRES: the report lists its ranks.
std::string plan_svg(const PlanReport&);

}  // namespace dtensor::report
