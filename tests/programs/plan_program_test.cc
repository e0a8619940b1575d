// SPDX-License-Identifier: Apache-2.0
// Tests the output of the plan program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/programs/running.h"
#include "tests/programs/xml.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

Json plan(const std::string& args) {
  const Ran r = run_program("plan", args + " --json");
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  const Json json = Json::parse(r.out, nullptr, false);
  EXPECT_TRUE(json.is_object()) << args << ": not JSON alone:\n" << r.out;
  return json;
}

std::string picture(const std::string& args) {
  const std::string file = temporary("plan.svg");
  const Ran r = run_program("plan", args + " --svg " + file);
  EXPECT_EQ(r.code, 0) << args << "\n" << r.err;
  const std::string text = read_file(file);
  EXPECT_EQ(picture_error(text), "") << args;
  return text;
}

TEST(PlanProgram, AllToAll) {
  const Json json = plan("--mesh x=2 --shape 6,4 --from S0 --to S1");
  EXPECT_EQ(json["mesh"], "x=2");
  EXPECT_EQ(json["to_mesh"], "x=2");
  EXPECT_EQ(json["shape"], Json({6, 4}));
  EXPECT_EQ(json["dtype"], "f32");
  EXPECT_EQ(json["from"], "S0");
  EXPECT_EQ(json["to"], "S1");
  ASSERT_EQ(json["steps"].size(), 1u);
  const Json& step = json["steps"][0];
  EXPECT_EQ(step["kind"], "all_to_all");
  EXPECT_EQ(step["axes"], Json({"x"}));
  EXPECT_EQ(step["from"], "S0");
  EXPECT_EQ(step["to"], "S1");
  // 3 rows of 2 columns of 4 bytes from the other rank.
  EXPECT_EQ(step["bytes"], 24);
  EXPECT_EQ(json["bytes_received_max"], 24);
  EXPECT_EQ(json["bytes_sent_max"], 24);
  EXPECT_EQ(json["bytes_lower_bound"], 24);
  EXPECT_EQ(json["peak_elements"], 12 + 12);
  // 5 us, and 24 bytes at 20 GB/s.
  EXPECT_NEAR(json["time_us"].get<double>(), 5.0012, 1e-9);
  EXPECT_EQ(step["time_us"], json["time_us"]);
  EXPECT_GT(json["planning_us"].get<double>(), 0);
}

TEST(PlanProgram, Reductions) {
  const Json whole = plan("--mesh 4 --shape 64 --from P --to R --dtype f64");
  ASSERT_EQ(whole["steps"].size(), 1u);
  EXPECT_EQ(whole["steps"][0]["kind"], "all_reduce");
  EXPECT_EQ(whole["bytes_received_max"], 2 * 3 * 16 * 8);
  EXPECT_EQ(whole["bytes_sent_max"], 2 * 3 * 16 * 8);
  EXPECT_TRUE(whole["bytes_lower_bound"].is_null());
  const Json part = plan("--mesh 4 --shape 64 --from P --to S0 --dtype bf16");
  EXPECT_EQ(part["steps"][0]["kind"], "reduce_scatter");
  EXPECT_EQ(part["bytes_received_max"], 3 * 16 * 2);
}

TEST(PlanProgram, NothingIsSent) {
  const Json slice = plan("--mesh 2x4 --shape 64,64 --from R,S1 --to S0,S1");
  ASSERT_EQ(slice["steps"].size(), 1u);
  EXPECT_EQ(slice["steps"][0]["kind"], "slice");
  EXPECT_EQ(slice["steps"][0]["axes"], Json::array());
  EXPECT_EQ(slice["steps"][0]["bytes"], 0);
  EXPECT_EQ(slice["steps"][0]["time_us"], 0);
  for (const char* field :
       {"bytes_received_max", "bytes_sent_max", "bytes_lower_bound", "time_us"})
    EXPECT_EQ(slice[field], 0) << field;
  const Json same = plan("--mesh 2x4 --shape 64,64 --from R,S1 --to R,S1");
  EXPECT_EQ(same["steps"], Json::array());
  EXPECT_EQ(same["bytes_lower_bound"], 0);
  EXPECT_EQ(same["peak_elements"], 64 * 16);
  EXPECT_GT(same["planning_us"].get<double>(), 0);
  EXPECT_EQ(plan("--mesh 2 --shape 8 --from R --to P")["steps"][0]["kind"],
            "partial_fill");
}

TEST(PlanProgram, RaggedPartsAndOrders) {
  // Rank 1 has [3, 5) and needs [4, 9), so it lacks 4 elements. Rank 0 lacks
  // one.
  const Json ragged = plan(
      "--mesh 3 --shape 14 --from '[{a0}@0|3|5|14]' "
      "--to S0");
  EXPECT_EQ(ragged["steps"][0]["kind"], "exchange");
  EXPECT_EQ(ragged["bytes_received_max"], 16);
  EXPECT_EQ(ragged["bytes_lower_bound"], 16);
  const Json turned =
      plan("--mesh x=2,y=2 --shape 8 --from '[{x,y}]' --to '[{y,x}]'");
  EXPECT_EQ(turned["steps"][0]["kind"], "permute");
  EXPECT_EQ(turned["bytes_received_max"], 8);
}

TEST(PlanProgram, BetweenMeshes) {
  // Ranks 2 and 3 take over what 0 and 1 have.
  const Json away = plan(
      "--mesh x=2 --shape 8 --from S0 --to-mesh 'y=2 of ranks 3,2' --to S0");
  EXPECT_EQ(away["to_mesh"], "y=2 of ranks 3,2");
  ASSERT_EQ(away["steps"].size(), 1u);
  EXPECT_EQ(away["steps"][0]["kind"], "exchange");
  EXPECT_EQ(away["bytes_received_max"], 16);
  EXPECT_EQ(away["bytes_sent_max"], 16);
  EXPECT_EQ(away["bytes_lower_bound"], 16);
  EXPECT_NEAR(away["time_us"].get<double>(), 5 + 16 / 20e3, 1e-9);
  EXPECT_EQ(away["steps"][0]["time_us"], away["time_us"]);
  // Ranks are assigned to the new mesh by what they have.
  const std::string turned =
      "--mesh x=2,y=2 --shape 8,8 --from S0,S1 --to-mesh "
      "'a=2,b=2 of ranks 3,0,1,2' --to S0,S1";
  EXPECT_GT(plan(turned)["bytes_received_max"], 0);
  const Json assigned = plan(turned + " --assign-ranks");
  EXPECT_EQ(assigned["bytes_received_max"], 0);
  EXPECT_EQ(assigned["to_mesh"], "a=2,b=2");
}

TEST(PlanProgram, TakesPricesFromAFile) {
  const std::string cost =
      write_file("cost.json",
                 R"({"axes": [{"alpha_us": 1, "gbytes_per_s": 1,
                    "kinds": {"all_gather": {"alpha_us": 3}}}]})");
  const std::string args = "--mesh 2 --shape 6,4 --cost " + cost;
  EXPECT_NEAR(plan(args + " --from S0 --to S1")["time_us"].get<double>(),
              1 + 0.024, 1e-9);
  EXPECT_NEAR(plan(args + " --from S0 --to R")["time_us"].get<double>(),
              3 + 0.048, 1e-9);
}

TEST(PlanProgram, PrintsThePricesOfItsSteps) {
  const std::string cost =
      write_file("kinds.json",
                 R"({"axes": [{"alpha_us": 1, "gbytes_per_s": 1,
                    "kinds": {"all_gather": {"alpha_us": 3,
                                             "gbytes_per_s": 2}}}]})");
  const Ran r = run_program(
      "plan", "--mesh 2 --shape 6,4 --from S0 --to R --cost " + cost);
  EXPECT_NE(r.out.find("time 3.024 us at alpha 3 us, 2 GB/s (all-gather over "
                       "a0)\n"),
            r.out.npos)
      << r.out;
}

TEST(PlanProgram, PrintsTheAnswer) {
  const Ran r = run_program(
      "plan", "--mesh x=2,y=4 --shape 64,64,64 --from R,S1 --to S0,S0");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  for (const char* text :
       {"f32[64, 64, 64](R,S1) on x=2,y=4", "step  kind", "98,304",
        "   1  exchange  x,y   R,S1  S0,S0  ", "exactly the lower bound",
        "source 262,144 + destination 131,072", "planned in"})
    EXPECT_NE(r.out.find(text), r.out.npos) << text << "\n" << r.out;
  const Ran partial =
      run_program("plan", "--mesh 2 --shape 8 --from P --to S0");
  EXPECT_NE(partial.out.find("not defined for partial values"),
            partial.out.npos)
      << partial.out;
  const Ran help = run_program("plan", "--help");
  EXPECT_EQ(help.code, 0);
  for (const char* flag :
       {"--mesh", "--shape", "--from", "--to", "--to-mesh", "--assign-ranks",
        "--dtype", "--cost", "--svg", "--json"})
    EXPECT_NE(help.out.find(flag), help.out.npos) << flag;
}

TEST(PlanProgram, SixteenThousandRanks) {
  const std::string args =
      "--mesh 128x128 --shape 4096,4096 --from S0,S1 --to S1,S0";
  const Json json = plan(args);
  EXPECT_EQ(json["bytes_received_max"], 32 * 32 * 4);
  EXPECT_EQ(json["bytes_lower_bound"], 32 * 32 * 4);
  EXPECT_TRUE(json["bytes_sent_max"].is_null());
  const std::string svg = picture(args);
  EXPECT_EQ(occurrences(svg, "15360-16383"), 1);
  EXPECT_EQ(occurrences(svg, "not drawn for 16,384 ranks"), 1);
}

TEST(PlanPicture, ShowsEveryRank) {
  const std::string svg =
      picture("--mesh 4x4 --shape 64,100 --from S0,S1 --to S1,S0");
  EXPECT_EQ(occurrences(svg, ">f32[64, 100]: "), 1) << "no heading";
  // A rank's number is once in each of the two tensors, and at a row and a
  // column of the matrix of sends. 0 also stands where the tensors' sides
  // begin.
  for (int rank = 0; rank < 16; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(occurrences(svg, ">" + number + "</text>"), rank == 0 ? 8 : 4)
        << rank;
    EXPECT_EQ(occurrences(svg, "<title>ranks " + number + "\n"), 2) << rank;
    EXPECT_EQ(occurrences(svg, ">" + number + " (" + std::to_string(rank / 4) +
                                   "," + std::to_string(rank % 4) + ")</text>"),
              1)
        << "no legend for rank " << rank;
  }
}

TEST(PlanPicture, SaysWhoSendsWhom) {
  // Rows [0, 3) and [3, 6) become columns [0, 2) and [2, 4).
  const std::string svg = picture("--mesh 2 --shape 6,4 --from S0 --to S1");
  for (const char* text :
       {"0 to 1: 24 bytes", "1 to 0: 24 bytes", "0 keeps 24 bytes",
        "1 keeps 24 bytes", "0 sends 24 bytes", "1 receives 24 bytes"})
    EXPECT_EQ(occurrences(svg, std::string(">") + text), 1) << text;
  for (const char* text : {"dimension 0: 0 to 3", "dimension 0: 3 to 6",
                           "dimension 1: 0 to 2", "dimension 1: 2 to 4"})
    EXPECT_EQ(occurrences(svg, text), 1) << text;
  EXPECT_EQ(occurrences(svg, "exactly the lower bound"), 1);
}

TEST(PlanPicture, SumsWhatAllReducesSend) {
  // Each of 3 ranks sends the summands of the others' chunks of 5 elements (1,
  // 2 and 2), and then its own chunk to the others.
  const std::string svg = picture("--mesh 3 --shape 5 --from P --to R");
  EXPECT_EQ(occurrences(svg, ">0 to 1: 12 bytes"), 1);
  EXPECT_EQ(occurrences(svg, ">1 to 2: 16 bytes"), 1);
  EXPECT_EQ(occurrences(svg, ">0 sends 24 bytes"), 1);
  EXPECT_EQ(occurrences(svg, ">2 sends 28 bytes"), 1);
  EXPECT_EQ(occurrences(svg, ">2 receives 28 bytes"), 1);
  EXPECT_GE(occurrences(svg, ">0 + 1 + 2<"), 1);
}

// The notes below a picture explain only what it shows.
TEST(PlanPicture, ExplainsItsStripes) {
  const struct {
    const char* args;
    int striped, partial, keeps;
  } kCases[] = {
      {"--mesh 2 --shape 6,4 --from S0 --to S1", 0, 0, 1},
      {"--mesh 2 --shape 6,4 --from S0 --to R", 1, 0, 1},
      {"--mesh 2 --shape 6,4 --from P --to S0", 0, 1, 1},
      {"--mesh 2x2 --shape 6,4 --from P,R --to R,R", 1, 1, 1},
      {"--mesh x=1 --shape 4 --from R --to-mesh 'y=1 of ranks 1' --to R", 0, 0,
       0},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.args);
    const std::string svg = picture(c.args);
    EXPECT_EQ(occurrences(svg, ">Striped: several ranks hold this part.<"),
              c.striped);
    EXPECT_EQ(occurrences(svg, ">Striped with white: each rank holds"),
              c.partial);
    EXPECT_EQ(occurrences(svg, ">Hatched grey: bytes that a rank keeps.<"),
              c.keeps);
  }
}

TEST(PlanPicture, OfEveryLayout) {
  const std::string three =
      picture("--mesh 2x2x2 --shape 8,8,8 --from S0,S1,S2 --to R,R,R");
  EXPECT_EQ(
      occurrences(three, "The tensor has 3 dimensions; 0 and 1 are drawn"), 1);
  const std::string steps =
      picture("--mesh x=2,y=2 --shape 5,7 --from P,S0 --to R,'P(max)'");
  EXPECT_EQ(occurrences(steps, "step 2 of 2: partial-fill, nothing is sent"),
            1);
  EXPECT_GE(occurrences(steps, "max((0 2), (1 3))"), 1);
  const std::string across = picture(
      "--mesh x=2,y=2 --to-mesh z=3 --shape 12,10 --from S0,S1 --to S0");
  EXPECT_EQ(occurrences(across, "exchange between the meshes"), 1);
  EXPECT_EQ(occurrences(across, "3 (1,1)\xe2\x86\x92-"), 1);
  for (const char* args :
       {"--mesh 2x3 --shape 0,4,4 --from S0,S1 --to S1,S0",
        "--mesh 2 --shape 1 --from S0 --to R",
        "--mesh 2x2 --shape 8,8 --from S0,R --to S0,R",
        "--mesh 64 --shape 1000003 --from S0 --to R",
        "--mesh 8x8 --shape 640,640 --from S0,S1 --to S1,S0",
        "--mesh 2x2 --shape 6,6 --from P,'P(max)' --to S0,S1",
        "--mesh 4 --shape 2,9,2 --from S1 --to S2"})
    EXPECT_GT(picture(args).size(), 1000u) << args;
}

// A side of size 0 has no numbers: each would lie at 0 / 0.
TEST(PlanPicture, NumbersTheSidesOfTensors) {
  const std::string across = R"(fill="#68727f" text-anchor="middle">)",
                    down = R"(fill="#68727f" text-anchor="end">)";
  const std::string none =
      picture("--mesh 2x3 --shape 0,4 --from S0,S1 --to S1,S0");
  EXPECT_EQ(occurrences(none, "nan"), 0) << none;
  EXPECT_EQ(occurrences(none, down), 0);
  EXPECT_EQ(occurrences(none, across + "4</text>"), 2);
  const std::string one = picture("--mesh 2 --shape 1,3 --from S0 --to R");
  for (const std::string number : {"0", "1"})
    EXPECT_EQ(occurrences(one, down + number + "</text>"), 2) << number;
  for (const std::string number : {"0", "3"})
    EXPECT_EQ(occurrences(one, across + number + "</text>"), 2) << number;
}

TEST(PlanPicture, GoesWhereTheCallerIs) {
  const std::string folder = temporary("");
  const Ran r = run_program(
      "plan", "--mesh 2 --shape 8 --from S0 --to R --svg relative.svg",
      "BUILD_WORKING_DIRECTORY=" + folder);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(picture_error(read_file(temporary("relative.svg"))), "");
}

}  // namespace
}  // namespace dtensor::testing
