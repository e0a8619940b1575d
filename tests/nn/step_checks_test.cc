// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/step_checks.h"

#include <gtest/gtest.h>

#include <functional>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

const std::vector<CommRow> kRows = {
    {"tp", "all-reduce", "matmul", "forward", 4, 4096, 4096},
    {"dp", "all-reduce", "grad", "backward", 7, 12345, 12345}};

std::string error(const std::vector<CommRow>& predicted,
                  const std::vector<CommRow>& ran) {
  try {
    check_agreement(predicted, ran);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(StepChecks, TheSameRowsAgree) {
  EXPECT_EQ(error(kRows, kRows), "");
  // A dry run counts nothing.
  std::vector<CommRow> dry = kRows;
  for (CommRow& row : dry) row.counted = 0;
  EXPECT_EQ(error(dry, kRows), "");
  EXPECT_EQ(error({}, {}), "");
}

TEST(StepChecks, NothingElseAgrees) {
  const std::vector<std::function<void(CommRow&)>> changes = {
      [](CommRow& r) { r.axis = "dp,tp"; },
      [](CommRow& r) { r.kind = "all-gather"; },
      [](CommRow& r) { r.op = "add"; },
      [](CommRow& r) { r.phase = "report"; },
      [](CommRow& r) { ++r.count; },
      [](CommRow& r) { ++r.predicted; }};
  for (size_t c = 0; c < changes.size(); ++c)
    for (size_t i = 0; i < kRows.size(); ++i) {
      std::vector<CommRow> other = kRows;
      changes[c](other[i]);
      EXPECT_NE(error(other, kRows), "") << c << " of row " << i;
      EXPECT_NE(error(kRows, other), "") << c << " of row " << i;
    }
  EXPECT_NE(error({kRows[0]}, kRows), "");
  EXPECT_NE(error(kRows, {kRows[0]}), "");
}

TEST(StepChecks, AByteCountedMoreOrLessIsAnError) {
  for (int64_t off : {-1, 1}) {
    std::vector<CommRow> ran = kRows;
    ran[1].counted += off;
    EXPECT_NE(error(kRows, ran)
                  .find(fmt::format("12345 bytes planned and {} counted",
                                    12345 + off)),
              std::string::npos)
        << error(kRows, ran);
  }
}

TEST(StepChecks, EveryStepReceivesWhatTheFirstDid) {
  const auto event = [](int64_t counted) {
    return CommEvent{Mesh::parse("tp=2"),
                     1,
                     StepKind::kAllReduce,
                     "matmul",
                     "forward",
                     8,
                     counted};
  };
  const std::vector<CommEvent> first = {event(8), event(16)};
  EXPECT_NO_THROW(check_same_step(3, 1, first, first));
  const std::vector<CommEvent> others[] = {
      {event(8), event(17)}, {event(7), event(16)}, {event(24)}, {}};
  for (const auto& now : others)
    EXPECT_THROW(check_same_step(3, 1, first, now), Error);
  EXPECT_EQ(
      testing::error_of([&] { check_same_step(3, 1, first, others[0]); }),
      "[train] on rank 1, step 3 received 25 bytes (without those that the "
      "data decide) and its number of collectives was 2, but the first step "
      "received 24 and its number was 2; make all batches of one shape, or "
      "set check_bytes to false");
}

}  // namespace
}  // namespace dtensor::nn
