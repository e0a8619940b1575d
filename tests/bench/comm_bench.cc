// SPDX-License-Identifier: Apache-2.0
// Compares collectives of thread ranks with memcpy(); comm_mpi_bench adds MPI.
//
//   bazel run //tests/bench:comm_bench -- --help
#include <algorithm>
#include <climits>
#include <string>
#include <vector>

#include "tests/bench/comm_cases.h"
#include "tests/command_line.h"

int main(int argc, char** argv) {
  dtensor::Flags flags;
  int64_t rounds = 41;
  std::string only;
  std::vector<std::string> what{"collectives", "agreement", "matmul"};
  flags.add("--rounds", &rounds, "how often each contender runs", 1, INT_MAX);
  flags.add("--only", &only, "cases whose name has this",
            dtensor::TextKind::kText);
  flags.add("--what", &what, "which tables", what);
  const char* about =
      "Collectives of thread ranks against a memcpy and the least traffic; "
      "all-reduces with the agreement and without.";
  return parse_and_run(flags, about, argc, argv, [&] {
    const auto wants = [&](const char* table) {
      return std::count(what.begin(), what.end(), table) > 0;
    };
    if (wants("collectives"))
      dtensor::compare_collectives(
          rounds, only, [](const dtensor::CommCase&, dtensor::Runtime&) {
            return std::vector<dtensor::Contender>();
          });
    if (wants("agreement")) dtensor::compare_agreement(rounds);
    if (wants("matmul")) dtensor::compare_matmul(rounds);
    return 0;
  });
}
