// A picture of what ranks called last.
#pragma once
#include <cstdint>
#include <string>

#include "examples/report/flight_report.h"

namespace dtensor::report {

// The SVG file: a row per rank (and per other thread that communicated), a
// column for each of the last `most` collectives, in the order in which they
// began. A bar is a member's call, of one colour where all called the same;
// hollow while not all had come, dashed red where a member never came.
std::string flight_svg(const FlightReport&, int64_t most);

}  // namespace dtensor::report
