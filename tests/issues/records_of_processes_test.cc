// SPDX-License-Identifier: Apache-2.0
// Every process of a job wrote the records of --html and --record, and the last
// one to finish won; with --record - all but the main one failed.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/mpirun.h"
#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

TEST(RecordsOfProcesses, AreWrittenByTheMainProcess) {
  if (!no_mpi().empty()) GTEST_SKIP() << no_mpi();
  const Ran r = run_program(
      "train",
      "--mesh dp=2 --layers 1 --hidden 32 --heads 4 --seq 12 --batch 4 "
      "--steps 2 --sample 0 --record -",
      mpirun(2));
  ASSERT_EQ(r.code, 0) << r.err;
  const auto records = nlohmann::json::parse(r.out, nullptr, false);
  ASSERT_EQ(records.size(), 2u);  // what was predicted, and what rank 0 did
  EXPECT_EQ(records[1]["runs"][0]["rank"], 0);
}

// With --record, the totals counted the events of rank 0 a second time.
TEST(RecordsOfProcesses, LeaveTheTotalsAlone) {
  const auto totals = [](const std::string& flags) {
    const Ran r =
        run_program("12_own_architecture", "--mesh tp=2 --json " + flags);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out, nullptr, false)["collectives"];
  };
  const nlohmann::json alone = totals("");
  EXPECT_FALSE(alone.empty());
  EXPECT_EQ(totals("--record " + temporary("record.json")), alone);
}

}  // namespace
}  // namespace dtensor::testing
