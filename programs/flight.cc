// SPDX-License-Identifier: Apache-2.0
// Compares the files that the flight recorder wrote for the ranks of a run:
// each rank's last collective, where ranks diverge, and which never arrived.
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "dtensor/placement/error.h"
#include "dtensor/program/program.h"
#include "dtensor/text_file.h"
#include "programs/report/flight_report.h"
#include "programs/report/flight_svg.h"

namespace dtensor::examples {
namespace {

constexpr int64_t kInPicture = 60;

bool is_flight(const std::string& path) {
  try {
    report::parse_flight(path, read_text_file("flight", path));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The shell expands "--json DIR/*.json" so that --json would overwrite the
// first file to read. Throws Error instead.
void check_json(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i)
    DT_CHECK(std::string_view(argv[i]) != "--json" || !is_flight(argv[i + 1]),
             "--json",
             "it would overwrite {}; write the files to read before --json",
             argv[i + 1]);
}

int flight_main(int argc, char** argv) {
  std::vector<std::string> paths;
  std::string svg;
  int64_t rows = 5;
  Program program(
      {.about = "Compares the last collectives of ranks, from the files that a "
                "program writes\nto --flight DIR when its run fails, or at "
                "SIGUSR1.",
       .no_ranks = true});
  program.add_words(&paths, "rank-0.json, rank-1.json, ... of one run",
                    "FILE...");
  program.add("--last", &rows, "how many collectives of each group to show");
  program.add("--svg", &svg,
              "the file for a picture of each rank's last collectives",
              TextKind::kFile);
  std::optional<report::FlightReport> flights;
  const auto read = [&] {
    check_json(argc, argv);
    std::vector<report::FlightFile> files;
    for (const std::string& path : paths)
      files.push_back(
          report::parse_flight(path, read_text_file("flight", path)));
    flights.emplace(std::move(files));
    if (!svg.empty()) check_writable("--svg", svg);
  };
  return program.main(argc, argv, read, [&] {
    fmt::print("{}", flights->to_text(rows));
    if (!svg.empty())
      write_text_file("--svg", svg, report::flight_svg(*flights, kInPicture));
    program.write_json(flights->to_json());
  });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  return dtensor::examples::flight_main(argc, argv);
}
