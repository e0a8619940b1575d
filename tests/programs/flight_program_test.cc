// SPDX-License-Identifier: Apache-2.0
// --flight, SIGUSR1, --trace and //:flight, as users use them: with a program
// that goes wrong, and with training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/programs/running.h"
#include "tests/programs/xml.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

// Relative to the folder of the programs.
const char kFaulty[] = "../tests/programs/faulty";
const char kTiny[] =
    " --layers 1 --hidden 8 --heads 2 --seq 8 --batch 2 --sample 0 ";

std::string fresh_folder(const std::string& name) {
  const std::string path = temporary(name);
  std::filesystem::remove_all(path);
  return path;
}

// Runs //:flight on the files that a program left in the folder.
Ran lined_up(const std::string& folder, const std::string& before = "",
             const std::string& behind = "") {
  return run_program("flight", before + " " + folder + "/*.json " + behind);
}

TEST(FlightProgram, SaysWhereARankCallsSomethingElse) {
  const std::string dir = fresh_folder("differs");
  const Ran bad = run_program(kFaulty, "--fault differs --flight " + dir);
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("disagree about collective #4"), bad.err.npos)
      << bad.err;
  const Ran r = lined_up(dir);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("4 of 4 ranks, written "), r.out.npos) << r.out;
  EXPECT_NE(
      r.out.find("ranks diverge at collective #4 of ranks 0-3:\n"
                 "  ranks 0,1,3 called all-reduce #4 (sum, f32, 32 bytes) for "
                 "redistribute\n"
                 "  rank 2 called reduce-scatter #4 (sum, f32, 32 bytes) for "
                 "redistribute\n"),
      r.out.npos)
      << r.out;
}

// The README's two commands: a training whose learning rate is far too high,
// and flight.
TEST(FlightProgram, ReadsWhatATrainingLeavesThatFails) {
  const std::string dir = fresh_folder("diverges");
  const Ran bad = run_program(
      "train",
      "--layers 1 --hidden 16 --heads 2 --seq 16 --batch 4 --sample 0 "
      "--mesh dp=2,tp=2 --lr 1e30 --flight " +
          dir);
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("try a smaller lr or clip"), bad.err.npos) << bad.err;
  const Ran r = lined_up(dir);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("4 of 4 ranks, written "), r.out.npos) << r.out;
  EXPECT_NE(r.out.find("because of a failure"), r.out.npos) << r.out;
}

// Rank 2 swaps two sums, so the calls differ only in their size.
TEST(FlightProgram, SaysWhereCallsAreSwapped) {
  const std::string dir = fresh_folder("swapped");
  EXPECT_EQ(run_program(kFaulty, "--fault swapped --flight " + dir).code, 1);
  const Ran r = lined_up(dir, "", "--json");
  EXPECT_EQ(r.code, 0) << r.err;
  const Json json = Json::parse(r.out);
  ASSERT_EQ(json["faults"].size(), 1u) << r.out;
  const Json& fault = json["faults"][0];
  EXPECT_EQ(fault["sequence"], 4);
  EXPECT_EQ(fault["parts"], true);
  EXPECT_EQ(fault["never_came"], Json::array());
  ASSERT_EQ(fault["calls"].size(), 4u);
  EXPECT_EQ(fault["calls"][1]["call"],
            "all-reduce #4 (sum, f32, 32 bytes) for redistribute");
  EXPECT_EQ(fault["calls"][2]["call"],
            "all-reduce #4 (sum, f32, 24 bytes) for redistribute");
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["ranks"][2]["state"], "failed");
  EXPECT_NE(r.err.find("ranks diverge at"), r.err.npos) << r.err;
}

TEST(FlightProgram, SaysWhoNeverCame) {
  const std::string dir = fresh_folder("absent");
  EXPECT_EQ(run_program(kFaulty, "--fault absent --flight " + dir).code, 1);
  const Ran r = lined_up(dir, "--last 2");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("rank 2 never reached collective #4 of ranks 0-3, "
                       "all-reduce #4 (sum, f32, 32 bytes) for redistribute:\n"
                       "  ranks 0,1,3 arrived "),
            r.out.npos)
      << r.out;
  EXPECT_NE(r.out.find("  rank 2 had left the program; its last call was "
                       "all-reduce #3 (sum, f32, 32 bytes)"),
            r.out.npos)
      << r.out;
  EXPECT_NE(r.out.find("threw 0,1,3"), r.out.npos) << r.out;
}

TEST(FlightProgram, DrawsIt) {
  const std::string dir = fresh_folder("drawn"), svg = temporary("flight.svg");
  EXPECT_EQ(run_program(kFaulty, "--fault absent --flight " + dir).code, 1);
  EXPECT_EQ(lined_up(dir, "--svg " + svg).code, 0);
  const std::string picture = read_file(svg);
  EXPECT_EQ(picture_error(picture), "");
  // Three calls by four ranks, and one by three ranks, which rank 2 never
  // reached.
  EXPECT_EQ(occurrences(picture, ": all-reduce #"), 3 * 4 + 3);
  EXPECT_EQ(occurrences(picture, "rank 2 never reached all-reduce #4"), 1);
  // Later calls are further to the right.
  double last = 0;
  for (int call = 1; call <= 4; ++call) {
    const size_t bar = picture.rfind(
        "<rect x=\"",
        picture.find("rank 0: all-reduce #" + std::to_string(call)));
    ASSERT_NE(bar, picture.npos) << call;
    const double x = std::atof(picture.c_str() + bar + 9);
    EXPECT_GT(x, last) << call;
    last = x;
  }
  // Only the title of the column with the fault is bold.
  ASSERT_EQ(occurrences(picture, "bold"), 1);
  const size_t bold = picture.find("bold");
  EXPECT_EQ(picture.substr(picture.find('>', bold), 14), ">all-reduce #4");
}

TEST(FlightProgram, LeavesNothingWithoutAFailure) {
  const std::string dir = fresh_folder("none");
  const Ran r = run_program(kFaulty, "--flight " + dir);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

// While rank 2 sleeps, the other ranks wait for it. Then the run goes on.
TEST(FlightProgram, AnswersSigusr1) {
  const std::string dir = fresh_folder("asked");
  const Ran r = run_and_ask(kFaulty, "--fault late --flight " + dir, 2,
                            "cp -r " + dir + " " + dir + ".early");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("faulty: the last collectives of 4 ranks are in " + dir +
                       "/rank-N.json\n"),
            r.err.npos)
      << r.err;
  const Ran early = lined_up(dir + ".early");
  EXPECT_EQ(early.code, 0) << early.err;
  EXPECT_NE(early.out.find("because of SIGUSR1"), early.out.npos) << early.out;
  EXPECT_NE(early.out.find("rank 2 never reached collective #4"),
            early.out.npos)
      << early.out;
  EXPECT_NE(early.out.find("  rank 2 was running; its last call was all-reduce "
                           "#3"),
            early.out.npos)
      << early.out;
}

// Without --flight, the files are written to the current folder.
TEST(FlightProgram, AnswersSigusr1Anywhere) {
  const std::string dir = fresh_folder("current");
  std::filesystem::create_directories(dir);
  const Ran r = run_and_ask(kFaulty, "--fault late", 2, "true",
                            "BUILD_WORKING_DIRECTORY=" + dir);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find(" are in " + dir + "/rank-N.json\n"), r.err.npos)
      << r.err;
  EXPECT_EQ(lined_up(dir).code, 0);
}

TEST(FlightProgram, RefusesWhatItCannotRead) {
  const std::string dir = fresh_folder("damaged");
  EXPECT_EQ(run_program(kFaulty, "--fault absent --flight " + dir).code, 1);
  const std::string text = read_file(dir + "/rank-1.json");
  const std::string half =
      write_file("half.json", text.substr(0, text.size() / 2));
  const Ran r = run_program("flight", dir + "/rank-0.json " + half);
  EXPECT_EQ(r.code, 2);
  EXPECT_NE(r.err.find("flight: [flight] " + half + " is not JSON"), r.err.npos)
      << r.err;
  const std::string before = read_file(dir + "/rank-0.json");
  const Ran over = lined_up(dir, "--json");
  EXPECT_EQ(over.code, 2);
  EXPECT_NE(over.err.find("it would overwrite " + dir + "/rank-0.json"),
            over.err.npos)
      << over.err;
  EXPECT_EQ(read_file(dir + "/rank-0.json"), before);
  const Ran help = run_program("flight", "--help");
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.out.find("usage: flight [flags] FILE...\n"), 0u) << help.out;
  EXPECT_EQ(help.out.find("--mesh"), help.out.npos);
}

// The trace has as many collectives, of as many bytes, as the table of
// training.
TEST(TraceOfTraining, AgreesWithItsTable) {
  const std::string path = temporary("train.json");
  const Ran r = run_program("train", kTiny +
                                         std::string("--steps 3 --mesh "
                                                     "dp=2,tp=2 --json "
                                                     "--trace ") +
                                         path);
  ASSERT_EQ(r.code, 0) << r.err;
  const Json result = Json::parse(r.out), trace = Json::parse(read_file(path));
  int64_t counted = 0, bytes = 0;
  for (const Json& row : result["collectives"]) {
    counted += row["count"].get<int64_t>();
    bytes += row["bytes_counted"].get<int64_t>();
  }
  std::map<int64_t, int64_t> by_rank, bytes_by_rank;
  std::map<std::string, int64_t> spans;
  std::map<int64_t, std::vector<std::pair<double, double>>> steps;
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "span") {
      ++spans[e["name"]];
      if (e["name"] == "step")
        steps[e["pid"]].push_back(
            {e["ts"], e["ts"].get<double>() + e["dur"].get<double>()});
    }
  EXPECT_EQ(spans["step"], 12);
  EXPECT_EQ(spans["forward"], 12);
  EXPECT_EQ(spans["backward"], 12);
  EXPECT_EQ(spans["update"], 12);
  // The table is of one step, and has only collectives of tensors.
  for (const Json& e : trace["traceEvents"]) {
    if (e["ph"] != "X" || e["cat"] != "collective") continue;
    if (e["name"] == "barrier" || e["name"] == "all-gather-bytes") continue;
    const auto& [begin, end] = steps[e["pid"]].at(1);
    if (e["ts"] < begin || e["ts"] > end) continue;
    ++by_rank[e["pid"]];
    bytes_by_rank[e["pid"]] += e["args"]["received bytes"].get<int64_t>();
  }
  ASSERT_EQ(by_rank.size(), 4u);
  for (const auto& [rank, n] : by_rank) EXPECT_EQ(n, counted) << rank;
  int64_t most = 0;
  for (const auto& [rank, n] : bytes_by_rank) most = std::max(most, n);
  EXPECT_EQ(most, bytes);
  // The table of waits, and the same in the result.
  EXPECT_NE(r.err.find("waiting for the last rank of a collective"), r.err.npos)
      << r.err;
  ASSERT_FALSE(result["waiting"].empty());
  int64_t waits = 0;
  for (const Json& row : result["waiting"])
    waits += row["collectives"].get<int64_t>();
  EXPECT_GE(waits, 3 * 4 * counted);
}

}  // namespace
}  // namespace dtensor::testing
