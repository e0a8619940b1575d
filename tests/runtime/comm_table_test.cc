#include "dtensor/runtime/comm_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dtensor {
namespace {

const Mesh& mesh() {
  static const Mesh m = Mesh::parse("dp=2,tp=2");
  return m;
}

CommEvent event(AxisMask axes, const char* op, int64_t predicted,
                int64_t counted, const char* phase = "forward") {
  return {mesh(), axes, StepKind::kAllReduce, op, phase, predicted, counted};
}

TEST(CommTable, TakesTheMostOfAnyRankEventByEvent) {
  // Summing first and taking the most afterwards would give 14 and 13.
  const std::vector<std::vector<CommEvent>> ranks = {
      {event(1, "a", 8, 8), event(1, "a", 6, 3)},
      {event(1, "a", 7, 4), event(1, "a", 9, 9)}};
  const auto merged = merge_events(ranks);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].predicted, 8);
  EXPECT_EQ(merged[1].counted, 9);
  EXPECT_EQ(
      comm_rows(merged),
      (std::vector<CommRow>{{"dp", "all-reduce", "a", "forward", 2, 17, 17}}));
}

TEST(CommTable, RanksMayTakePartInDifferentCollectives) {
  const std::vector<std::vector<CommEvent>> ranks = {
      {event(1, "a", 1, 1), event(2, "b", 2, 2)},
      {event(2, "b", 3, 3), event(1, "a", 4, 4), event(1, "a", 5, 5)}};
  const auto rows = comm_rows(merge_events(ranks));
  EXPECT_EQ(rows, (std::vector<CommRow>{
                      {"dp", "all-reduce", "a", "forward", 2, 9, 9},
                      {"tp", "all-reduce", "b", "forward", 1, 3, 3}}));
}

TEST(CommTable, RowsKeepAxesOpsAndPhasesApart) {
  const std::vector<CommEvent> events = {
      event(1, "a", 1, 1), event(3, "a", 1, 1), event(1, "b", 1, 1),
      event(1, "a", 1, 1, "backward"), event(1, "a", 1, 1)};
  const auto rows = comm_rows(events);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].count, 2);
  EXPECT_EQ(rows[1].axis, "dp,tp");
}

TEST(CommTable, TensorsThatMoveTogetherAreOneCollective) {
  auto numbered = [](const char* op, int64_t collective, int64_t times = 1) {
    CommEvent e = event(1, op, 4, 4);
    e.collective = collective;
    e.times = times;
    return e;
  };
  // Rank 1 numbers otherwise, and has one more.
  const std::vector<std::vector<CommEvent>> ranks = {
      {numbered("a", 1), numbered("a", 1), numbered("b", 2, 3)},
      {numbered("a", 7), numbered("a", 7), numbered("b", 8, 3),
       numbered("a", 1)}};
  EXPECT_EQ(
      comm_rows(merge_events(ranks)),
      (std::vector<CommRow>{{"dp", "all-reduce", "a", "forward", 2, 12, 12},
                            {"dp", "all-reduce", "b", "forward", 3, 4, 4}}));
}

TEST(CommTable, TextAndJson) {
  const std::vector<CommRow> rows = {
      {"tp", "all-gather", "matmul", "forward", 3, 12345, 12345}};
  EXPECT_EQ(comm_table(rows, false),
            "phase    op      axis  kind        count   bytes\n"
            "forward  matmul  tp    all-gather      3  12,345\n"
            "total                                  3  12,345\n");
  EXPECT_EQ(comm_json(rows, true).dump(),
            R"([{"axis":"tp","kind":"all-gather","op":"matmul",)"
            R"("phase":"forward","count":3,"bytes_predicted":12345,)"
            R"("bytes_counted":12345}])");
  EXPECT_EQ(comm_json({}, false).dump(), "[]");
}

}  // namespace
}  // namespace dtensor
