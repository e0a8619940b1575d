// A picture of a plan.
#pragma once
#include <string>

#include "examples/report/plan_report.h"

namespace dtensor::report {

// Step by step: the tensor in boxes coloured by the ranks that hold them,
// before and after, and a table of who sends whom how much. Of tensors of more
// than two dimensions it shows two that are cut, at the first index of the
// others, and says so; more than 16 ranks share colours and rows. REQUIRES: the
// report lists its ranks.
std::string plan_svg(const PlanReport&);

}  // namespace dtensor::report
