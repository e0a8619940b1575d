// --flight, SIGUSR1 and //:flight, as users have them, on a program that goes
// wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/examples/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

// Beside the programs of examples/.
const char kFaulty[] = "../tests/examples/faulty";

std::string fresh_folder(const std::string& name) {
  const std::string path = temporary(name);
  std::filesystem::remove_all(path);
  return path;
}

// What a program left there, lined up.
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
      r.out.find("ranks part at collective #4 of ranks 0-3:\n"
                 "  ranks 0,1,3 called all-reduce #4 (sum, f32, 32 bytes) for "
                 "redistribute\n"
                 "  rank 2 called reduce-scatter #4 (sum, f32, 32 bytes) for "
                 "redistribute\n"),
      r.out.npos)
      << r.out;
}

// Two sums in another order: the same call, of other sizes.
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
  EXPECT_NE(r.err.find("ranks part at"), r.err.npos) << r.err;
}

TEST(FlightProgram, SaysWhoNeverCame) {
  const std::string dir = fresh_folder("absent");
  EXPECT_EQ(run_program(kFaulty, "--fault absent --flight " + dir).code, 1);
  const Ran r = lined_up(dir, "--last 2");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("rank 2 never came to collective #4 of ranks 0-3, "
                       "all-reduce #4 (sum, f32, 32 bytes) for redistribute:\n"
                       "  ranks 0,1,3 came, "),
            r.out.npos)
      << r.out;
  EXPECT_NE(r.out.find("  rank 2 had left the program; its last call was "
                       "all-reduce #3 (sum, f32, 32 bytes)"),
            r.out.npos)
      << r.out;
  EXPECT_NE(r.out.find("threw 0,1,3"), r.out.npos) << r.out;
}

TEST(FlightProgram, LeavesNothingWithoutAFailure) {
  const std::string dir = fresh_folder("none");
  const Ran r = run_program(kFaulty, "--flight " + dir);
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir));
}

// While rank 2 sleeps the others wait for it; the run goes on.
TEST(FlightProgram, AnswersSigusr1) {
  const std::string dir = fresh_folder("asked");
  const Ran r = run_and_ask(kFaulty, "--fault late --flight " + dir, 1.5,
                            "cp -r " + dir + " " + dir + ".early");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("faulty: the last collectives of 4 ranks are in " + dir +
                       "/rank-N.json\n"),
            r.err.npos)
      << r.err;
  const Ran early = lined_up(dir + ".early");
  EXPECT_EQ(early.code, 0) << early.err;
  EXPECT_NE(early.out.find("because of SIGUSR1"), early.out.npos) << early.out;
  EXPECT_NE(early.out.find("rank 2 never came to collective #4"),
            early.out.npos)
      << early.out;
  EXPECT_NE(early.out.find("  rank 2 was running; its last call was all-reduce "
                           "#3"),
            early.out.npos)
      << early.out;
}

// Without a flag it is to the current folder.
TEST(FlightProgram, AnswersSigusr1Anywhere) {
  const std::string dir = fresh_folder("current");
  std::filesystem::create_directories(dir);
  const Ran r = run_and_ask(kFaulty, "--fault late", 1.5, "true",
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
  EXPECT_NE(r.err.find("flight: [flight] " + half + " is damaged"), r.err.npos)
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

}  // namespace
}  // namespace dtensor::testing
