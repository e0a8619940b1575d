// SPDX-License-Identifier: Apache-2.0
// The flight recorder: the last collectives of both threads of every rank, as
// JSON that //:flight compares. Recording is always on. Files are written when
// a run fails (RunOptions::flight) and by write_flights().
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

// Makes the folder unless it exists. Throws Error, headed by `where`, if files
// cannot be written to it.
void make_flight_folder(std::string_view where, const std::string& folder);

// Calls write() for all active runs of this process; returns the number of
// files.
int64_t write_flights(const std::string& folder, std::string_view why);

}  // namespace dtensor
