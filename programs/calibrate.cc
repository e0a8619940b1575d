// SPDX-License-Identifier: Apache-2.0
// Times collectives on this machine, and fits prices to the times. Other
// programs read the prices with --cost.
#include <nlohmann/json.hpp>

#include "dtensor/placement/error.h"
#include "dtensor/program/cost_file.h"
#include "dtensor/program/program.h"
#include "dtensor/text_file.h"
#include "programs/calibration.h"
#include "programs/measure.h"

namespace dtensor::examples {
namespace {

int calibrate_main(int argc, char** argv) {
  int64_t max_bytes = int64_t{4} << 20, rounds = 25;
  std::string out, svg;
  Program program({.about = "Times collectives, and writes their prices to a "
                            "file for --cost.",
                   .mesh = "dp=2,tp=2"});
  program.add("--max-bytes", &max_bytes,
              "the most bytes that a rank receives in a collective", 256,
              int64_t{1} << 30);
  program.add("--rounds", &rounds,
              "how often each collective is timed; the median counts", 1,
              1'000'000);
  program.add("--out", &out, "the file for the prices", TextKind::kFile);
  program.add("--svg", &svg, "the file for a plot", TextKind::kFile);
  std::vector<Probe> list;
  const auto check = [&] {
    DT_CHECK(!program.dry_run(), "--dry-run",
             "a dry run sends nothing, so there is nothing to time; leave it "
             "out");
    DT_CHECK(!program.given("--cost"), "--cost",
             "it names prices, but this program measures them; leave it out");
    DT_CHECK(
        program.mesh().num_ranks() > 1, "--mesh",
        "{} has only one rank, which sends nothing; write --mesh 2 or more",
        program.mesh().to_string());
    for (const auto& [flag, path] : {std::pair("--out", out), {"--svg", svg}})
      if (!path.empty()) check_writable(flag, path);
    list = probes(program.mesh(), max_bytes);
  };
  return program.main(argc, argv, check, [&] {
    const std::vector<double> us = measure(list, program.run_options(), rounds);
    if (!program.is_main_process()) return;  // only rank 0 has the times
    const Calibration result = calibrate(list, us);
    fmt::print("{}", to_text(result));
    if (!out.empty())
      write_text_file("--out", out,
                      cost_json(result.cost, result.mesh).dump(2) + "\n");
    if (!svg.empty()) write_text_file("--svg", svg, calibration_svg(result));
    program.write_json(to_json(result));
  });
}

}  // namespace
}  // namespace dtensor::examples

int main(int argc, char** argv) {
  return dtensor::examples::calibrate_main(argc, argv);
}
