// The collectives of thread ranks against memcpy; comm_mpi_bench adds MPI.
//
//   bazel run //tests/bench:comm_bench -- --help
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/comm_cases.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Collectives of thread ranks against a memcpy and the least traffic; "
      "all-reduces with the agreement and without.");
  int rounds = 41;
  std::string only;
  std::vector<std::string> what{"collectives", "agreement", "matmul"};
  app.add_option("--rounds", rounds, "how often each contender runs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--only", only, "cases whose name has this");
  app.add_option("--what", what, "which tables")
      ->check(CLI::IsMember({"collectives", "agreement", "matmul"}))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
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
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
