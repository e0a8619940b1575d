// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_table.h"

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
  // The maximum of the ranks' sums would be 16 predicted and 13 counted bytes.
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
  // Rank 1 numbers its collectives differently, and has one more.
  const std::vector<std::vector<CommEvent>> ranks = {
      {numbered("a", 1), numbered("a", 1), numbered("b", 2, 3)},
      {numbered("a", 7), numbered("a", 7), numbered("b", 8, 3),
       numbered("a", 1)}};
  EXPECT_EQ(
      comm_rows(merge_events(ranks)),
      (std::vector<CommRow>{{"dp", "all-reduce", "a", "forward", 2, 12, 12},
                            {"dp", "all-reduce", "b", "forward", 3, 4, 4}}));
}

// Three stages of two ranks each: all stages send in "norm", the first two in
// "matmul", the last two receive in "pipeline". A row has the most bytes of a
// stage.
TEST(CommTable, WhatStagesReceiveIsNotAddedUp) {
  const auto on = [](int64_t stage, AxisMask axes, const char* op,
                     int64_t bytes, int64_t collective = 0) {
    const Mesh m({{"pp", 1}, {"tp", 2}}, {2 * stage, 2 * stage + 1});
    return CommEvent{m,     axes,  StepKind::kExchange, op, "forward",
                     bytes, bytes, collective};
  };
  CommEvent of_all = on(0, 1, "norm", 8);
  of_all.mesh = Mesh::parse("pp=3,tp=2");
  const std::vector<CommEvent> merged = {on(1, 0, "pipeline", 100),
                                         on(0, 2, "matmul", 40),
                                         on(0, 2, "matmul", 50),
                                         on(1, 2, "matmul", 60, 7),
                                         on(1, 2, "matmul", 5, 7),
                                         on(2, 0, "pipeline", 300),
                                         of_all};
  const auto lists = events_by_rank(merged);
  ASSERT_EQ(lists.size(), 3u);
  EXPECT_EQ(lists[0].size(), 3u);
  EXPECT_EQ(lists[1].size(), 4u);
  EXPECT_EQ(lists[2].size(), 2u);
  EXPECT_EQ(most_received(merged), 308);
  const auto rows = comm_rows(merged);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], (CommRow{"between meshes", "exchange", "pipeline",
                              "forward", 1, 300, 300}));
  EXPECT_EQ(rows[1],
            (CommRow{"tp", "exchange", "matmul", "forward", 2, 90, 90}));
  EXPECT_EQ(rows[2].predicted, 8);
  // The most collectives are those of the first two stages, the most bytes
  // those of the last stage.
  const std::string table = comm_table(merged, true);
  const std::string last = table.substr(table.rfind("maximum of a rank"));
  EXPECT_EQ(last.substr(last.find_first_of("0123456789")),
            "3              308      308\n")
      << table;
  EXPECT_EQ(most_received({}), 0);
}

TEST(CommTable, TextAndJson) {
  CommEvent e = event(2, "matmul", 12345, 12345);
  e.kind = StepKind::kAllGather;
  e.times = 3;
  const std::vector<CommEvent> events = {e};
  const std::vector<CommRow> rows = comm_rows(events);
  EXPECT_EQ(comm_table(events, false),
            "phase    op      axis  kind        count   bytes\n"
            "forward  matmul  tp    all-gather      3  12,345\n"
            "total                                  3  12,345\n");
  EXPECT_EQ(comm_json(rows, true).dump(),
            R"([{"axis":"tp","kind":"all-gather","op":"matmul",)"
            R"("phase":"forward","count":3,"bytes_predicted":12345,)"
            R"("bytes_counted":12345}])");
  EXPECT_EQ(comm_json({}, false).dump(), "[]");
}

TEST(CommTime, ACollectivePaysItsLatencyOnce) {
  CostTable cost;
  cost.axes = {{{1000, 3.0}, {}}, {{20000, 7.0}, {}}};
  const auto event = [](AxisMask axes, int64_t bytes, int64_t collective,
                        int64_t times) {
    return CommEvent{Mesh::parse("dp=2,tp=2"),
                     axes,
                     StepKind::kAllGather,
                     "op",
                     "forward",
                     bytes,
                     0,
                     collective,
                     times};
  };
  const auto ps = [&](std::vector<CommEvent> events) {
    return communication_ps(events, cost);
  };
  EXPECT_EQ(ps({}), 0);
  EXPECT_EQ(ps({event(1, 100, 0, 1)}), 1000 + 300);
  EXPECT_EQ(ps({event(2, 100, 0, 1)}), 20000 + 700);
  // Two separate collectives, one of two tensors, and one that runs three
  // times.
  EXPECT_EQ(ps({event(1, 100, 0, 1), event(1, 10, 0, 1)}), 2 * 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 5, 1), event(1, 10, 5, 1)}), 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 5, 1), event(1, 10, 6, 1)}), 2 * 1000 + 330);
  EXPECT_EQ(ps({event(1, 100, 0, 3)}), 3 * 1000 + 300);
  EXPECT_EQ(ps({event(1, 100, 5, 3), event(1, 10, 5, 3)}), 3 * 1000 + 330);
}

// Pipeline stages send at the same time, so only the slowest rank counts.
TEST(CommTime, OfTheRankThatIsAtItLongest) {
  CostTable cost;
  cost.axes = {{{1000, 3.0}, {}}};
  const auto to = [](int64_t rank, int64_t bytes) {
    return CommEvent{Mesh({{"pp", 1}}, {rank}),
                     0,
                     StepKind::kExchange,
                     "pipeline",
                     "forward",
                     bytes,
                     0};
  };
  const std::vector<CommEvent> events = {to(1, 100), to(2, 10), to(2, 20),
                                         to(3, 200)};
  EXPECT_EQ(communication_ps(events, cost), 2 * 1000 + 90);
}

}  // namespace
}  // namespace dtensor
