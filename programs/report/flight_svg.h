// SPDX-License-Identifier: Apache-2.0
// Draws the last collectives of all ranks.
#pragma once
#include <cstdint>
#include <string>

#include "programs/report/flight_report.h"

namespace dtensor::report {

// Returns an SVG file's content: a row for each rank (and each other thread
// that communicated), and a column for each of the last `most` collectives, in
// the order in which they began. A bar is a member's call: in one colour if all
// made the same call, hollow while some member had not arrived, and dashed red
// if it never arrived.
std::string flight_svg(const FlightReport&, int64_t most);

}  // namespace dtensor::report
