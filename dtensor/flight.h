// SPDX-License-Identifier: Apache-2.0
// The flight recorder: keeps the last collectives of every rank's main thread
// and second thread (async.h), and writes them as JSON files, which the program
// //:flight compares. It always records, except in a dry run. Files are written
// when a run fails (RunOptions::flight) and by write_flights().
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dtensor {

// Makes the folder unless it exists. Throws an Error that begins with `where`
// if files cannot be written to it.
void make_flight_folder(std::string_view where, const std::string& folder);

// Writes the files of all active runs of this process (see
// FlightRecorders::write()); returns the number of files.
int64_t write_flights(const std::string& folder, std::string_view why);

}  // namespace dtensor
