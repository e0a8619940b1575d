// SPDX-License-Identifier: Apache-2.0
// Schedules of pipelines, and the time and memory that they take.
#include "dtensor/nn/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

constexpr auto kF = PipelineWork::kForward;
constexpr auto kB = PipelineWork::kBackward;
constexpr auto kW = PipelineWork::kWeight;

std::string row(const PipelineSchedule& s, size_t position) {
  std::string text;
  for (const PipelineTask& t : s.tasks[position])
    text += (text.empty() ? "" : " ") + short_name(t, s);
  return text;
}

TEST(PipelineSchedule, GPipe) {
  const PipelineSchedule s = make_schedule("gpipe", 2, 3);
  EXPECT_EQ(row(s, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(row(s, 1), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(s.tasks[1][0].slot, 1);
  EXPECT_EQ(s.tasks[0][3].slot, 5);
}

// Narayanan et al., figure 4, upper half; its micro-batches count from 1.
TEST(PipelineSchedule, OneForwardOneBackward) {
  const PipelineSchedule s = make_schedule("1f1b", 4, 8);
  EXPECT_EQ(row(s, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(row(s, 1), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  EXPECT_EQ(row(s, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

// Narayanan et al., figure 4, lower half: two chunks, eight micro-batches.
TEST(PipelineSchedule, Interleaved) {
  const PipelineSchedule s = make_schedule("interleaved", 4, 8, 2);
  EXPECT_EQ(row(s, 0),
            "F0 F1 F2 F3 F0.1 F1.1 F2.1 F3.1 F4 F5 F6 B0.1 F7 B1.1 F4.1 B2.1 "
            "F5.1 B3.1 F6.1 B0 F7.1 B1 B2 B3 B4.1 B5.1 B6.1 B7.1 B4 B5 B6 B7");
  EXPECT_EQ(row(s, 3),
            "F0 F1 F2 F3 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3.1 B3.1 F4 B0 F5 B1 "
            "F6 B2 F7 B3 F4.1 B4.1 F5.1 B5.1 F6.1 B6.1 F7.1 B7.1 B4 B5 B6 B7");
  EXPECT_EQ(s.stages(), 8);
  EXPECT_EQ(s.tasks[3][4].stage, 7);
  // A slot is a forward of one chunk, half of a position's layers.
  EXPECT_EQ(s.tasks[3][0].slot, 3);
}

// Qi et al., figure 3: the first position computes a weight gradient after each
// backward, and the last position keeps its first three for later.
TEST(PipelineSchedule, ZeroBubbleH1) {
  const PipelineSchedule s = make_schedule("zb-h1", 4, 8);
  EXPECT_EQ(row(s, 0),
            "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 "
            "W6 B7 W7");
  EXPECT_EQ(row(s, 3),
            "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 "
            "W5 W6 W7");
}

// Checks that a position does one task at a time, and that no task begins
// before the tasks that it needs have finished.
void check_times(const PipelineSchedule& s, const PipelineSimulation& run,
                 const StageTimes& times) {
  std::map<std::string, TimedTask> at;
  int64_t count = 0;
  for (const auto& list : run.tasks) {
    double free = 0;
    for (const TimedTask& t : list) {
      EXPECT_GE(t.start, free);
      free = t.finish;
      EXPECT_EQ(t.finish, t.start + times.of(t.task, s));
      at[to_string(t.task)] = t;
      ++count;
    }
  }
  ASSERT_EQ(count, s.stages() * s.micros * (s.weight_tasks ? 3 : 2));
  ASSERT_EQ(count, static_cast<int64_t>(at.size()));
  const auto after = [&](PipelineTask later, PipelineTask earlier) {
    const TimedTask &l = at.at(to_string(later)),
                    &e = at.at(to_string(earlier));
    EXPECT_GE(l.start, e.finish) << s.name;
    EXPECT_GT(l.task.slot, e.task.slot) << s.name;
  };
  for (int64_t i = 0; i < s.micros; ++i)
    for (int64_t stage = 0; stage < s.stages(); ++stage) {
      after({kB, stage, i}, {kF, stage, i});
      if (s.weight_tasks) after({kW, stage, i}, {kB, stage, i});
      if (stage == 0) continue;
      after({kF, stage, i}, {kF, stage - 1, i});
      after({kB, stage - 1, i}, {kB, stage, i});
    }
}

TEST(PipelineSimulation, TheFormulasAndNoMoreMemory) {
  int64_t seen = 0;
  for (const std::string& name : schedule_names())
    for (int64_t p = 1; p <= 6; ++p)
      for (int64_t m = 1; m <= 14; ++m)
        for (int64_t v = 1; v <= (name == "interleaved" ? 3 : 1); ++v) {
          if (name == "interleaved" && m < p) continue;
          const PipelineSchedule s = make_schedule(name, p, m, v);
          const PipelineSimulation run = simulate(s);
          check_times(s, run, {});
          EXPECT_NEAR(run.bubble(), *bubble_formula(s), 1e-12)
              << name << " " << p << " " << m << " " << v;
          const std::map<std::string, int64_t> live = {
              {"gpipe", m},
              {"1f1b", std::min(p, m)},
              {"zb-h1", std::min(p, m)},
              {"zb-h2", std::min(2 * p - 1, m)}};
          if (name != "interleaved") {
            EXPECT_EQ(run.peak_live(), live.at(name)) << name;
          }
          ++seen;
        }
  EXPECT_GT(seen, 400);
}

TEST(PipelineSimulation, TheFormulasInNumbers) {
  const auto bubble = [](const char* name, int64_t chunks, StageTimes t) {
    const PipelineSchedule s = make_schedule(name, 4, 8, chunks);
    return std::pair(*bubble_formula(s, t), simulate(s, {t}).bubble());
  };
  // (p - 1) / (m + p - 1) and (p - 1) / (V m + p - 1), whatever the times.
  for (const char* name : {"gpipe", "1f1b"})
    for (const StageTimes t : {StageTimes{1, 1, 1}, StageTimes{2, 3, 1.5}}) {
      EXPECT_DOUBLE_EQ(bubble(name, 1, t).first, 3 / 11.0);
      EXPECT_NEAR(bubble(name, 1, t).second, 3 / 11.0, 1e-12);
    }
  EXPECT_DOUBLE_EQ(bubble("interleaved", 2, {2, 3, 1}).first, 3 / 19.0);
  EXPECT_NEAR(bubble("interleaved", 2, {2, 3, 1}).second, 3 / 19.0, 1e-12);
  // (p - 1) (F + B - W), and for zb-h2 (p - 1) (F + B - 2 W).
  EXPECT_DOUBLE_EQ(bubble("zb-h1", 1, {}).first, 3 / 27.0);
  EXPECT_NEAR(bubble("zb-h1", 1, {}).second, 3 / 27.0, 1e-12);
  EXPECT_EQ(bubble("zb-h2", 1, {}).first, 0);
  EXPECT_NEAR(bubble("zb-h2", 1, {}).second, 0, 1e-12);
}

// A position holds a micro-batch until its weight gradient is computed.
TEST(PipelineSimulation, WhatEachPositionHolds) {
  using Live = std::vector<int64_t>;
  const auto live = [](const char* name) {
    return simulate(make_schedule(name, 4, 8)).live;
  };
  EXPECT_EQ(live("gpipe"), (Live{8, 8, 8, 8}));
  EXPECT_EQ(live("1f1b"), (Live{4, 3, 2, 1}));
  EXPECT_EQ(live("zb-h1"), (Live{4, 4, 4, 4}));
  EXPECT_EQ(live("zb-h2"), (Live{7, 7, 7, 7}));
}

TEST(PipelineSimulation, UnevenStages) {
  const PipelineSchedule s = make_schedule("gpipe", 2, 2);
  const std::vector<StageTimes> times = {{1, 1, 1}, {3, 4, 0}};
  const PipelineSimulation run = simulate(s, times);
  // Stage 1: forwards 1 to 4 and 4 to 7, backwards 7 to 11 and 11 to 15.
  EXPECT_EQ(run.tasks[1].back().finish, 15);
  EXPECT_EQ(run.tasks[0][2].start, 11);
  EXPECT_EQ(run.makespan, 17);
  EXPECT_EQ(run.span, 17);
  EXPECT_EQ(run.busy, 6);
  EXPECT_EQ(run.live, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(error_of([&] { simulate(make_schedule("gpipe", 3, 2), times); }),
            "[pipeline] there are times for 2 stages, but the schedule has 3; "
            "write one for all stages, or one for each");
  EXPECT_EQ(error_of([&] {
              simulate(s, {{1, -1, 1}});
            }),
            "[pipeline] times[0] has forward 1, backward -1 and weight 1; "
            "write times of at least 0");
}

PipelineSchedule table(std::vector<std::vector<PipelineTask>> tasks,
                       bool weights = false) {
  PipelineSchedule s;
  s.name = "mine";
  s.positions = 2;
  s.micros = 2;
  s.weight_tasks = weights;
  s.tasks = std::move(tasks);
  return s;
}

const std::vector<PipelineTask> kFirst = {
    {kF, 0, 0}, {kF, 0, 1}, {kB, 0, 0}, {kB, 0, 1}};
const std::vector<PipelineTask> kSecond = {
    {kF, 1, 0}, {kB, 1, 0}, {kF, 1, 1}, {kB, 1, 1}};

TEST(PipelineSchedule, ATableOfTheUsers) {
  const PipelineSchedule s = checked(table({kFirst, kSecond}));
  EXPECT_EQ(s.tasks[1][3].slot, 4);
  EXPECT_EQ(s.tasks[0][2].slot, 3);
  EXPECT_EQ(bubble_formula(s), std::nullopt);
  EXPECT_EQ(simulate(s).live, (std::vector<int64_t>{2, 1}));
}

TEST(PipelineSchedule, RefusesTables) {
  const auto error = [](std::vector<PipelineTask> first,
                        std::vector<PipelineTask> second = kSecond) {
    return error_of([&] { checked(table({first, second}), "mine"); });
  };
  EXPECT_EQ(error({{kF, 0, 0}, {kF, 0, 1}, {kB, 0, 0}}),
            "[mine] the backward of micro-batch 1 at stage 0 is missing; add "
            "B1 to the list of position 0");
  EXPECT_EQ(error({{kF, 0, 0}, {kF, 0, 0}}),
            "[mine] the forward of micro-batch 0 at stage 0 is in the schedule "
            "twice; write it once");
  EXPECT_EQ(error({{kF, 1, 0}}),
            "[mine] the forward of micro-batch 0 at stage 1 is in the list of "
            "position 0, but the stage is at 1; write it there");
  EXPECT_EQ(error({{kF, 2, 0}}),
            "[mine] the schedule lists the forward of micro-batch 0 at stage "
            "2, but the stages are 0 to 1; list only these");
  EXPECT_EQ(error({{kF, 0, 2}}),
            "[mine] the schedule lists the forward of micro-batch 2 at stage "
            "0, but the micro-batches are 0 to 1; list only these");
  EXPECT_EQ(error({{kW, 0, 0}}),
            "[mine] the weight gradient of micro-batch 0 at stage 0 is in a "
            "schedule without weight tasks; leave it out");
  EXPECT_EQ(
      error_of([] {
        checked(table({kFirst, kSecond}, true), "mine");
      }),
      "[mine] the weight gradient of micro-batch 0 at stage 0 is missing; add "
      "W0 to the list of position 0");
  EXPECT_EQ(error_of([] { checked(table({kFirst}), "mine"); }),
            "[mine] the number of lists of tasks is 1, but that of positions "
            "is 2; write one list for each position");
  // Position 0 waits for a gradient before it sends the second activation,
  // which position 1 needs before that gradient.
  EXPECT_EQ(error({{kF, 0, 0}, {kB, 0, 0}, {kF, 0, 1}, {kB, 0, 1}},
                  {{kF, 1, 0}, {kF, 1, 1}, {kB, 1, 0}, {kB, 1, 1}}),
            "[mine] the order deadlocks: the backward of micro-batch 0 at "
            "stage 0 waits for the backward of micro-batch 0 at stage 1, which "
            "comes after the forward of micro-batch 1 at stage 1, which waits "
            "for the forward of micro-batch 1 at stage 0, which comes after "
            "the backward of micro-batch 0 at stage 0; change the order");
  EXPECT_EQ(error({{kB, 0, 0}, {kF, 0, 0}, {kF, 0, 1}, {kB, 0, 1}}),
            "[mine] the order deadlocks: the backward of micro-batch 0 at "
            "stage 0 waits for the forward of micro-batch 0 at stage 0, which "
            "comes after the backward of micro-batch 0 at stage 0; change the "
            "order");
}

// A task in a circle may be the next one of its position.
TEST(PipelineSchedule, ACircleOfTasksThatComeNext) {
  PipelineSchedule s = table({{{kF, 0, 0},
                               {kF, 2, 1},
                               {kF, 0, 1},
                               {kF, 2, 0},
                               {kB, 2, 0},
                               {kB, 2, 1},
                               {kB, 0, 0},
                               {kB, 0, 1}},
                              {{kF, 1, 1},
                               {kF, 1, 0},
                               {kF, 3, 0},
                               {kF, 3, 1},
                               {kB, 3, 0},
                               {kB, 3, 1},
                               {kB, 1, 0},
                               {kB, 1, 1}}});
  s.chunks = 2;
  EXPECT_EQ(error_of([&] { checked(s, "mine"); }),
            "[mine] the order deadlocks: the forward of micro-batch 1 at stage "
            "2 waits for the forward of micro-batch 1 at stage 1, which waits "
            "for the forward of micro-batch 1 at stage 0, which comes after "
            "the forward of micro-batch 1 at stage 2; change the order");
}

TEST(PipelineSchedule, Names) {
  EXPECT_TRUE(is_schedule_name("zb-h1"));
  EXPECT_FALSE(is_schedule_name("zb-h"));
  EXPECT_FALSE(is_schedule_name(""));
  EXPECT_EQ(name(kF), "forward");
  EXPECT_EQ(name(kB), "backward");
  EXPECT_EQ(name(kW), "weight");
}

TEST(PipelineSchedule, RefusesSizes) {
  EXPECT_EQ(error_of([] { make_schedule("2f2b", 2, 2); }),
            "[pipeline] there is no schedule '2f2b'; write one of gpipe, 1f1b, "
            "interleaved, zb-h1, zb-h2");
  EXPECT_EQ(error_of([] { make_schedule("1f1b", 0, 2); }),
            "[pipeline] the schedule has positions 0, chunks 1 and "
            "micro-batches 2; write 1 or more for each");
  // Sizes are checked before anything is made.
  EXPECT_EQ(error_of([] { make_schedule("1f1b", 4096, 100000); }),
            "[pipeline] the schedule has positions 4096, chunks 1 and "
            "micro-batches 100000; write numbers whose product is 1000000 or "
            "less");
  const int64_t huge = int64_t{1} << 62;
  for (const auto& [p, m, v] :
       {std::tuple(huge, huge, huge), std::tuple(int64_t{1}, huge, int64_t{4}),
        std::tuple(huge, int64_t{2}, int64_t{1}),
        std::tuple(int64_t{1}, kMostScheduled + 1, int64_t{1})})
    EXPECT_NE(error_of([&, p = p, m = m, v = v] {
                make_schedule("interleaved", p, m, v);
              }).find("product is 1000000 or less"),
              std::string::npos);
  EXPECT_EQ(make_schedule("gpipe", 1, 1000).tasks[0].size(), 2000u);
  PipelineSchedule many = table({kFirst, kSecond});
  many.micros = kMostScheduled;
  EXPECT_EQ(error_of([&] { checked(many, "mine"); }),
            "[mine] the schedule has positions 2, chunks 1 and micro-batches "
            "1000000; write numbers whose product is 1000000 or less");
  EXPECT_EQ(error_of([] { make_schedule("1f1b", 2, 2, 2); }),
            "[pipeline] the schedule 1f1b cannot have 2 chunks at each "
            "position; write the schedule interleaved, or 1 chunk");
  EXPECT_EQ(error_of([] { make_schedule("interleaved", 4, 3, 2); }),
            "[pipeline] interleaved needs at least as many micro-batches as "
            "positions, 4, but their number is 3; write 4 micro-batches or "
            "more, or 1f1b with 1 chunk");
}

}  // namespace
}  // namespace dtensor::nn
