// SPDX-License-Identifier: Apache-2.0
// Draws the last collectives of all ranks as a table.
#pragma once
#include <cstdint>
#include <string>

#include "programs/report/flight_report.h"

namespace dtensor::report {

// Returns an SVG file's content: a row for each rank (and for each asynchronous
// thread that communicated), and a column for each of the last `most`
// collectives, in the order in which they began. A bar is a member's call.
// Members whose call differs from the first member's have another colour. A bar
// is hollow if the call still waited for other members or threw Error. A dashed
// red bar stands for a member that never arrived.
std::string flight_svg(const FlightReport&, int64_t most);

}  // namespace dtensor::report
