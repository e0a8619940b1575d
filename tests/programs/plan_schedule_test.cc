// SPDX-License-Identifier: Apache-2.0
// Tests the output of the plan program for pipelines.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/programs/running.h"
#include "tests/programs/xml.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

Json schedule(const std::string& args) {
  const Ran r = run_program("plan", "--schedule " + args + " --json");
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  return Json::parse(r.out, nullptr, false);
}

std::string error(const std::string& args) {
  const Ran r = run_program("plan", args);
  EXPECT_EQ(r.code, 2) << args;
  EXPECT_EQ(r.out, "") << args;
  return r.err;
}

TEST(PlanSchedule, Text) {
  const Ran r = run_program("plan", "--schedule 1f1b --stages 2 --micro 3");
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.out,
            "1f1b: 2 positions, 3 micro-batches\n"
            "0 F0 F1    B0 F2 B1    B2\n"
            "1    F0 B0 F1 B1 F2 B2\n"
            "bubble 25.0 %, equal to the formula\n"
            "micro-batches held at most: 2, 1\n");
}

TEST(PlanSchedule, TextOfChunks) {
  const Ran r = run_program(
      "plan", "--schedule interleaved --stages 4 --micro 8 --chunks 2");
  EXPECT_EQ(r.out.substr(0, r.out.find('\n')),
            "interleaved: 4 positions of 2 chunks, 8 micro-batches");
}

TEST(PlanSchedule, Json) {
  const Json json =
      schedule("interleaved --stages 2 --micro 2 --chunks 2 --times 1,2,1");
  EXPECT_EQ(json["schedule"], "interleaved");
  EXPECT_EQ(json["positions"], 2);
  EXPECT_EQ(json["chunks"], 2);
  EXPECT_EQ(json["micro_batches"], 2);
  // (p - 1) / (V m + p - 1).
  EXPECT_DOUBLE_EQ(json["bubble"]["formula"].get<double>(), 0.2);
  EXPECT_NEAR(json["bubble"]["simulated"].get<double>(), 0.2, 1e-12);
  EXPECT_EQ(json["makespan"], 20);
  EXPECT_EQ(json["peak_live_micro_batches"], 4);
  ASSERT_EQ(json["tasks"].size(), 16u);
  EXPECT_EQ(json["tasks"][2],
            Json::parse(R"({"stage": 2, "slot": 2, "micro_batch": 0,
                            "kind": "forward", "start": 2, "finish": 3})"));
  EXPECT_EQ(json["tasks"][15]["kind"], "backward");
}

TEST(PlanSchedule, PicturesAreWellFormed) {
  for (const std::string args :
       {"gpipe --stages 4 --micro 8", "zb-h1 --stages 4 --micro 8",
        "interleaved --stages 3 --micro 7 --chunks 4",
        "zb-h2 --stages 1 --micro 1 --times 0,1,0"}) {
    const std::string file = temporary("schedule.svg");
    EXPECT_EQ(run_program("plan", "--schedule " + args + " --svg " + file).code,
              0);
    const std::string svg = read_file(file);
    EXPECT_EQ(picture_error(svg), "") << args;
    // The text is drawn, and is there again for people who cannot see.
    EXPECT_EQ(occurrences(svg, " micro-batches, bubble "), 2);
    EXPECT_NE(svg.find("the forward of micro-batch 0 at stage 0"),
              std::string::npos);
  }
}

// A picture has a largest width, however long one task takes compared with
// another.
TEST(PlanSchedule, PicturesHaveAnEnd) {
  const auto width = [](const std::string& args) {
    const std::string file = temporary("long.svg");
    EXPECT_EQ(run_program("plan", "--schedule " + args + " --svg " + file).code,
              0);
    const std::string svg = read_file(file);
    const std::string head = "width=\"";
    return std::stod(svg.substr(svg.find(head) + head.size()));
  };
  EXPECT_EQ(width("gpipe --stages 2 --micro 2 --times 1e-6,1,1"), 20000);
  EXPECT_LT(width("gpipe --stages 2 --micro 2"), 1600);
}

TEST(PlanSchedule, AFile) {
  const std::string file =
      write_file("mine.json",
                 R"({"micro_batches": 2, "chunks": 2, "tasks":
          [["F0", "F1", "F0.1", "B0.1", "F1.1", "B1.1", "B0", "B1",
            "W0.1", "W1.1", "W0", "W1"]]})");
  const Json json = schedule(file);
  EXPECT_EQ(json["schedule"], file);
  EXPECT_EQ(json["tasks"].size(), 12u);
  EXPECT_EQ(json["tasks"][3]["stage"], 1);
  EXPECT_TRUE(json["bubble"]["formula"].is_null());
  EXPECT_EQ(json["bubble"]["simulated"], 0);
  EXPECT_EQ(
      error("--schedule " + file + " --stages 2"),
      "plan: [--schedule] the number of positions in " + file +
          " is 1, but --stages, or axis pp of --mesh, is 2; write the same "
          "number\n");
  EXPECT_EQ(error("--schedule " + file + " --micro 3"),
            "plan: [--schedule] the number of micro-batches in " + file +
                " is 2, but --micro, or --micro-batches, is 3; write the same "
                "number\n");
}

TEST(PlanSchedule, BadFiles) {
  const auto of = [](const std::string& text) {
    const std::string file = write_file("bad.json", text);
    std::string e = error("--schedule " + file);
    const size_t at = e.find(file);
    if (at != std::string::npos) e.replace(at, file.size(), "FILE");
    return e;
  };
  EXPECT_EQ(of("[1]"),
            "plan: [--schedule] FILE is not a JSON object; write "
            "{\"micro_batches\": 1, \"tasks\": [[\"F0\", \"B0\"]]}\n");
  EXPECT_EQ(of(R"({"micros": 1})"),
            "plan: [--schedule] FILE has an entry 'micros'; write only "
            "micro_batches, chunks and tasks\n");
  EXPECT_EQ(of(R"({"tasks": []})"),
            "plan: [--schedule] FILE has nothing as \"micro_batches\"; write a "
            "whole number from 1 to 100000\n");
  EXPECT_EQ(of(R"({"micro_batches": 1})"),
            "plan: [--schedule] FILE has no \"tasks\" with a list for each "
            "position; write {\"micro_batches\": 1, \"tasks\": [[\"F0\", "
            "\"B0\"]]}\n");
  EXPECT_EQ(of(R"({"micro_batches": 1, "tasks": [3]})"),
            "plan: [--schedule] FILE has 3 in place of a list of tasks; "
            "write [\"F0\", \"B0\"]\n");
  EXPECT_EQ(of(R"({"micro_batches": 1, "micro_batches": 2, "tasks": []})"),
            "plan: [--schedule] FILE has two entries 'micro_batches'; write "
            "one\n");
  for (const std::string task :
       {"\"X0\"", "\"F\"", "\"\"", "7", "\"F-1\"", "\"F0.\"", "\"F0.x\"",
        "\".1\"", "\"F100001\""})
    EXPECT_EQ(of(R"({"micro_batches": 1, "tasks": [[)" + task + "]]}"),
              "plan: [--schedule] FILE has the task " + task +
                  "; write F3, B3 or W3, or F3.1 for chunk 1, with numbers "
                  "from 0 to 100000\n");
  EXPECT_EQ(of(R"({"micro_batches": 1, "tasks": [["F0.1"]]})"),
            "plan: [--schedule] FILE has the task \"F0.1\", but the number of "
            "the last chunk is 0; write \"chunks\": 2\n");
  EXPECT_EQ(
      of(R"({"micro_batches": 2, "tasks": [["F0", "F1", "B0"]]})"),
      "plan: [--schedule FILE] the backward of micro-batch 1 at stage 0 is "
      "missing; add B1 to the list of position 0\n");
  EXPECT_EQ(of(R"({"micro_batches": 100000, "chunks": 100000, "tasks": [[]]})"),
            "plan: [--schedule FILE] the schedule has positions 1, chunks "
            "100000 and micro-batches 100000; write numbers whose product is "
            "1000000 or less\n");
  EXPECT_EQ(of(R"({"micro_batches": 1, "tasks": [["B0", "F0"]]})"),
            "plan: [--schedule FILE] the order deadlocks: the backward of "
            "micro-batch 0 at stage 0 waits for the forward of micro-batch 0 "
            "at stage 0, which comes after the backward of micro-batch 0 at "
            "stage 0; change the order\n");
}

TEST(PlanSchedule, BadFlags) {
  EXPECT_EQ(error("--schedule 1f1b"),
            "plan: [--schedule] 1f1b needs numbers of positions and "
            "micro-batches; write --stages 4 --micro 8\n");
  EXPECT_EQ(error("--schedule 1f1b --stages 4 --micro 8 --shape 4"),
            "plan: [--shape] it has no effect with --schedule; leave it out\n");
  EXPECT_EQ(
      error("--shape 4 --from R --to R --mesh 2 --micro 4"),
      "plan: [--micro] it has no effect without --schedule; leave it out\n");
  for (const std::string times : {"1,2", "1,2,3,4", "0,0,0", "1,-1,1", "x"})
    EXPECT_EQ(error("--schedule gpipe --stages 2 --micro 2 --times " + times),
              "plan: [--times] it is '" + times +
                  "'; write the times of a forward, an input gradient and a "
                  "weight gradient, such as 1,1,1, each from 0 to 1e9, and "
                  "not all 0\n");
  EXPECT_EQ(error("--schedule interleaved --stages 4 --micro 2 --chunks 2"),
            "plan: [pipeline] interleaved needs at least as many micro-batches "
            "as positions, 4, but their number is 2; write 4 micro-batches or "
            "more, or 1f1b with 1 chunk\n");
  EXPECT_EQ(
      error("--schedule 1f1b --stages 4096 --micro 100000"),
      "plan: [pipeline] the schedule has positions 4096, chunks 1 and "
      "micro-batches 100000; write numbers whose product is 1000000 or less\n");
  EXPECT_NE(error("--schedule 3f3b --stages 4 --micro 2").find("3f3b"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::testing
