// SPDX-License-Identifier: Apache-2.0
// A program that uses class Program itself (with_flags.cc) reports what its
// runs send and hold, as one does that calls run(argc, argv, ...).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

const char kProgram[] = "../tests/programs/with_flags";

Json result(const std::string& args) {
  const Ran r = run_program(kProgram, args + " --json -");
  EXPECT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << args << " printed\n" << r.out << r.err;
  return json;
}

TEST(OwnProgram, DryRunPrintsWhatIsSentAndHeld) {
  const Ran r = run_program(kProgram, "--dry-run --rows 32 --mesh tp=4");
  EXPECT_EQ(r.code, 0) << r.err;
  // In an all-reduce of 8 KiB on 4 ranks, a rank receives 3/4 of that twice.
  for (const char* part :
       {"all-reduce", "12,288", "peak memory of a rank", "predicted time: ",
        "as if nothing overlapped, by these prices: alpha 5 us"})
    EXPECT_NE(r.out.find(part), r.out.npos) << part << " in\n" << r.out;
}

TEST(OwnProgram, JsonHasItToo) {
  const Json dry = result("--dry-run --rows 32 --mesh tp=4");
  ASSERT_EQ(dry["collectives"].size(), 1u) << dry;
  EXPECT_EQ(dry["collectives"][0]["bytes_predicted"], 12288);
  EXPECT_FALSE(dry["collectives"][0].contains("bytes_counted"));
  EXPECT_GT(dry["peak_bytes"].get<int64_t>(), 0);
  EXPECT_DOUBLE_EQ(dry["time"]["communication_us"], 5 + 12288 * 50e-6);
  EXPECT_GT(dry["time"]["work_us"].get<double>(), 0);
  const Json real = result("--rows 32 --mesh tp=4");
  ASSERT_EQ(real["collectives"].size(), 1u) << real;
  EXPECT_EQ(real["collectives"][0]["bytes_counted"], 12288);
  EXPECT_EQ(real["peak_bytes"], dry["peak_bytes"]);
  EXPECT_FALSE(real.contains("time"));
}

// If an all-reduce takes a second, other collectives replace it.
TEST(OwnProgram, PricesDecideWhatItSends) {
  const std::string cost = write_file(
      "cost.json",
      R"({"axes": [{"kinds": {"all_reduce": {"alpha_us": 1000000}}}]})");
  const Json dear = result("--dry-run --cost " + cost);
  EXPECT_NE(dear["collectives"], result("--dry-run")["collectives"]);
  const Ran bad = run_program(kProgram, "--cost h300");
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("h100, h200"), bad.err.npos) << bad.err;
  const Ran too_long = run_program(kProgram, "--cost " + std::string(300, 'a'));
  EXPECT_NE(too_long.err.find("h100, h200"), bad.err.npos) << too_long.err;
}

}  // namespace
}  // namespace dtensor::testing
