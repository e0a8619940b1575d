// SPDX-License-Identifier: Apache-2.0
#include "programs/report/flight_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/testing.h"

namespace dtensor::report {
namespace {

using Json = nlohmann::ordered_json;
using dtensor::testing::error_of;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kWritten = 1'800'000'000 * kSecond;

Json call(int64_t number, int64_t sequence, const char* state,
          const char* fingerprint, int64_t seconds_ago = 1,
          const char* op = "add", int group = 0) {
  return {{"number", number},
          {"group", group},
          {"sequence", sequence},
          {"kind", "all_reduce"},
          {"op", op},
          {"state", state},
          {"tensors", 1},
          {"bytes", 4096},
          {"dtype", "f32"},
          {"reduce", "sum"},
          {"fingerprint", fingerprint},
          {"begun_ns", kWritten - seconds_ago * kSecond}};
}

Json lane(int which, Json groups, Json calls) {
  return {{"lane", which},
          {"groups", std::move(groups)},
          {"now_ns", kWritten},
          {"collectives", std::move(calls)}};
}

Json file(int64_t rank, int64_t world, Json calls, const char* state = "runs",
          const char* error = "") {
  Json groups = Json::array({Json::array()});
  for (int64_t r = 0; r < world; ++r) groups[0].push_back(r);
  return {{"format", "dtensor flight recorder"},
          {"version", 1},
          {"rank", rank},
          {"world", world},
          {"host", "here"},
          {"process", 1},
          {"why", "a failure"},
          {"written_ns", kWritten},
          {"state", state},
          {"error", error},
          {"lanes",
           {lane(0, groups, std::move(calls)),
            lane(1, Json::array(), Json::array())}}};
}

FlightReport report_of(const std::vector<Json>& all) {
  std::vector<FlightFile> files;
  for (const Json& one : all)
    files.push_back(parse_flight("rank.json", one.dump()));
  return FlightReport(std::move(files));
}

TEST(FlightReport, SaysThatNothingIsWrong) {
  const Json calls = {call(1, 1, "ended", "a1"), call(2, 2, "ended", "a2")};
  const FlightReport r = report_of({file(1, 2, calls), file(0, 2, calls)});
  EXPECT_TRUE(r.faults.empty());
  EXPECT_TRUE(r.without.empty());
  EXPECT_EQ(r.rows.size(), 2u);
  EXPECT_EQ(r.files[0].rank, 0);
  const std::string text = r.to_text(5);
  EXPECT_NE(text.find("2 of 2 ranks, written 2027-01-15 08:00:00 UTC because "
                      "of a failure"),
            text.npos)
      << text;
  EXPECT_NE(text.find("made the same calls, and no rank is missing"), text.npos)
      << text;
  EXPECT_NE(text.find("all-reduce #2 (sum, f32, 4,096 bytes) for add"),
            text.npos)
      << text;
  // to_text(1) has only the last collective.
  EXPECT_EQ(r.to_text(1).find("#1 (sum"), text.npos);
}

TEST(FlightReport, SaysWhereRanksPart) {
  std::vector<Json> all;
  for (int64_t r = 0; r < 3; ++r)
    all.push_back(file(
        r, 3,
        {call(1, 1, "ended", "a1"), call(2, 2, "threw", r == 1 ? "b2" : "a2", 1,
                                         r == 1 ? "mul" : "add")}));
  const FlightReport r = report_of(all);
  ASSERT_EQ(r.faults.size(), 1u);
  const FlightRow& row = r.rows[r.faults[0]];
  EXPECT_TRUE(row.parts);
  EXPECT_TRUE(row.missing.empty());
  EXPECT_EQ(row.sequence, 2);
  const std::string text = r.to_text(5);
  EXPECT_NE(
      text.find("ranks diverge at collective #2 of ranks 0-2:\n"
                "  ranks 0,2 called all-reduce #2 (sum, f32, 4,096 bytes) for "
                "add\n"
                "  rank 1 called all-reduce #2 (sum, f32, 4,096 bytes) for "
                "mul\n"),
      text.npos)
      << text;
  EXPECT_EQ(r.to_json()["faults"][0]["parts"], true);
  EXPECT_EQ(r.to_json()["faults"][0]["calls"].size(), 3u);
}

TEST(FlightReport, CountsMillisecondsBelowASecond) {
  for (const auto& [ns, says] : {std::pair{kSecond - 1'000'000, "999 ms"},
                                 std::pair{kSecond, "1.0 s"}}) {
    Json one = call(1, 1, "ended", "a1");
    one["begun_ns"] = kWritten - ns;
    const std::string text = report_of({file(0, 1, {one})}).to_text(5);
    EXPECT_NE(text.find(says), text.npos) << says << " in " << text;
  }
}

// If calls look the same, the text has their fingerprints.
TEST(FlightReport, ShowsFingerprintsOfWhatLooksTheSame) {
  const FlightReport r = report_of({file(0, 2, {call(1, 1, "threw", "a1")}),
                                    file(1, 2, {call(1, 1, "threw", "b1")})});
  const std::string text = r.to_text(5);
  EXPECT_NE(text.find("for add, fingerprint a1\n"), text.npos) << text;
  EXPECT_NE(text.find("for add, fingerprint b1\n"), text.npos) << text;
}

TEST(FlightReport, SaysWhoNeverCame) {
  const Json ahead = {call(1, 1, "ended", "a1", 9),
                      call(2, 2, "waits", "a2", 7)};
  const FlightReport r =
      report_of({file(0, 3, ahead), file(1, 3, ahead),
                 file(2, 3, {call(1, 1, "ended", "a1", 9)}, "left")});
  ASSERT_EQ(r.faults.size(), 1u);
  EXPECT_EQ(r.rows[r.faults[0]].missing, std::vector<int64_t>{2});
  const std::string text = r.to_text(5);
  EXPECT_NE(
      text.find("rank 2 never reached collective #2 of ranks 0-2, all-reduce "
                "#2 (sum, f32, 4,096 bytes) for add:\n"
                "  ranks 0,1 arrived 7.0 s ago\n"
                "  rank 2 had left the program; its last call was all-reduce "
                "#1 (sum, f32, 4,096 bytes) for add of ranks 0-2, 9.0 s ago\n"),
      text.npos)
      << text;
  EXPECT_EQ(r.to_json()["faults"][0]["never_came"], Json({2}));
}

TEST(FlightReport, SaysWhyARankNeverCame) {
  const FlightReport r =
      report_of({file(0, 2, {call(1, 1, "waits", "a1", 2)}),
                 file(1, 2, Json::array(), "failed", "[add] too large")});
  const std::string text = r.to_text(5);
  EXPECT_NE(text.find("rank 1 failed: [add] too large; it had not called any "
                      "collective\n"),
            text.npos)
      << text;
}

// Rank 1 has dropped its entry of call 1, but it must have taken part in it.
TEST(FlightReport, BlamesNobodyForOldEntries) {
  const FlightReport r = report_of(
      {file(0, 2, {call(1, 1, "ended", "a1"), call(2, 2, "ended", "a2")}),
       file(1, 2, {call(2, 2, "ended", "a2")})});
  EXPECT_TRUE(r.faults.empty());
}

// If a rank has no file, the report says only that.
TEST(FlightReport, SaysWhoHasNoFile) {
  const FlightReport r = report_of({file(0, 3, {call(1, 1, "waits", "a1")}),
                                    file(2, 3, {call(1, 1, "waits", "a1")})});
  EXPECT_EQ(r.without, std::vector<int64_t>{1});
  EXPECT_TRUE(r.faults.empty());
  const std::string text = r.to_text(5);
  EXPECT_NE(text.find("2 of 3 ranks"), text.npos) << text;
  EXPECT_NE(text.find("no file of rank 1\n"), text.npos) << text;
}

// Groups and threads are compared separately. The earlier fault comes first.
TEST(FlightReport, KnowsGroupsAndThreads) {
  const auto with_pair = [](int64_t rank, Json own, Json other) {
    Json f = file(rank, 4, Json::array());
    const Json groups = {{0, 1}, {0, 1, 2, 3}};
    f["lanes"][0] = lane(0, groups, std::move(own));
    f["lanes"][1] = lane(1, groups, std::move(other));
    return f;
  };
  const FlightReport r = report_of(
      {with_pair(0, {call(1, 1, "threw", "a1", 3, "add", 0)},
                 {call(1, 1, "waits", "c1", 8, "mul", 1)}),
       with_pair(1, {call(1, 1, "threw", "b1", 3, "add", 0)}, Json::array())});
  ASSERT_EQ(r.faults.size(), 2u);
  EXPECT_EQ(r.rows[r.faults[0]].lane, 1);
  EXPECT_EQ(r.rows[r.faults[0]].missing, std::vector<int64_t>{1});
  EXPECT_EQ(r.rows[r.faults[1]].lane, 0);
  EXPECT_TRUE(r.rows[r.faults[1]].parts);
  const std::string text = r.to_text(5);
  EXPECT_NE(text.find("ranks 0-3, redistribute_async, the last"), text.npos)
      << text;
}

// Faults that begin at the same time come in the order of their threads.
TEST(FlightReport, OrdersFaultsOfOneTime) {
  const auto with_two = [](int64_t rank, const char* fingerprint) {
    Json f = file(rank, 2, {call(1, 1, "threw", fingerprint)});
    f["lanes"][1] = f["lanes"][0];
    f["lanes"][1]["lane"] = 1;
    return f;
  };
  const FlightReport r = report_of({with_two(0, "a1"), with_two(1, "b1")});
  ASSERT_EQ(r.faults.size(), 2u);
  EXPECT_EQ(r.rows[r.faults[0]].lane, 0);
  EXPECT_EQ(r.rows[r.faults[1]].lane, 1);
}

// Files may have different reasons; the report gives that of the lowest rank.
TEST(FlightReport, GivesTheReasonOfTheFirstRank) {
  const Json calls = Json::array();
  Json other = file(1, 3, calls);
  other["why"] = "a signal";
  const FlightReport r = report_of({other, file(0, 3, calls)});
  EXPECT_NE(r.to_text(5).find("because of a failure"), std::string::npos);
  EXPECT_EQ(r.to_json()["why"], "a failure");
  EXPECT_EQ(r.to_json()["world"], 3);
  EXPECT_EQ(
      error_of([&] {
        report_of({file(0, 3, calls), file(1, 3, calls), file(2, 4, calls)});
      }),
      "[flight] the run's number of ranks is 3 in a file of rank 0, and 4 in a "
      "file of rank 2; name the files of one run");
}

TEST(FlightReport, RefusesFilesOfTwoRuns) {
  const Json calls = Json::array();
  EXPECT_EQ(error_of([&] {
              report_of({file(0, 2, calls), file(1, 3, calls)});
            }),
            "[flight] the run's number of ranks is 2 in a file of rank 0, and "
            "3 in a file of rank 1; name the files of one run");
  EXPECT_EQ(error_of([&] {
              report_of({file(1, 2, calls), file(1, 2, calls)});
            }),
            "[flight] two files are from rank 1; name one file of each rank, "
            "all from one run");
  EXPECT_EQ(error_of([&] { report_of({}); }),
            "[flight] no files were given; name the files rank-N.json of "
            "one --flight DIR");
  // The report says so if the files may be from two runs.
  Json old = file(0, 2, calls);
  old["written_ns"] = kWritten - 300 * kSecond;
  const std::string text = report_of({old, file(1, 2, calls)}).to_text(5);
  EXPECT_NE(text.find("300.0 s before the newest: are they all from one run?"),
            text.npos)
      << text;
}

TEST(ParseFlight, RefusesOtherFiles) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_flight("x.json", text); });
  };
  const Json good = file(0, 2, {call(1, 1, "ended", "a1")});
  EXPECT_EQ(error(good.dump()), "no error");
  EXPECT_EQ(error(good.dump().substr(0, 300)),
            "[flight] x.json is not JSON: it is damaged, or not from the "
            "flight recorder; "
            "name the files rank-N.json of one --flight DIR");
  for (const char* text : {"{}", "[1, 2]", "3", R"({"format": "other"})"})
    EXPECT_EQ(error(text),
              "[flight] x.json is not a file of the flight recorder; name "
              "the files rank-N.json of one --flight DIR");
  const auto changed = [&](const char* path, const Json& value) {
    Json json = good;
    json[Json::json_pointer(path)] = value;
    return error(json.dump());
  };
  EXPECT_NE(changed("/version", 2).find("has version 2, but this program"),
            std::string::npos);
  for (const auto& [path, value, says] :
       std::vector<std::tuple<const char*, Json, const char*>>{
           {"/rank", -1, "its rank is -1"},
           {"/rank", 2, "its rank 2 is not below its world 2"},
           {"/rank", "zero", "its rank is \"zero\""},
           {"/state", "asleep", "its state is \"asleep\""},
           {"/lanes", Json::array(), "the number of its lanes is 0, not 2"},
           {"/lanes/0/collectives/0/group", 5, "it has no group 5"},
           {"/lanes/0/collectives/0/state", "gone", "its state is \"gone\""},
           {"/lanes/0/collectives/0/bytes", -8, "its bytes is -8"},
           {"/lanes/0/collectives/0/op", 3, "x.json is damaged: "},
           {"/lanes/0/groups", "none", "x.json is damaged: "}})
    EXPECT_NE(changed(path, value).find(says), std::string::npos)
        << path << ": " << changed(path, value);
  Json less = good;
  less["lanes"][0]["collectives"][0].erase("fingerprint");
  EXPECT_NE(error(less.dump()).find("x.json is damaged: "), std::string::npos);
}

}  // namespace
}  // namespace dtensor::report
