// SPDX-License-Identifier: Apache-2.0
// Checks the output of --trace FILE and --json - for runs whose ranks are in
// several processes.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/programs/running.h"

namespace dtensor::testing {

// Expects one file for all ranks. All ranks have equally many steps, arrows
// from other processes lead to each process, and the result names the rank that
// the others waited for.
inline void expect_one_trace(const std::string& path, int64_t ranks,
                             int64_t ranks_per_process,
                             const nlohmann::json& result) {
  using Json = nlohmann::json;
  ASSERT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
  const Json trace = Json::parse(read_file(path));
  std::map<int64_t, int64_t> steps;
  std::map<int64_t, int64_t> from;  // an arrow's id -> the rank it begins at
  std::set<int64_t> between;
  for (const Json& e : trace["traceEvents"]) {
    EXPECT_GE(e.value("ts", 0.0), 0);
    if (e["ph"] == "X" && e["name"] == "step") ++steps[e["pid"]];
    if (e["ph"] == "s") from[e["id"]] = e["pid"].get<int64_t>();
  }
  for (const Json& e : trace["traceEvents"])
    if (e["ph"] == "f" && e["pid"].get<int64_t>() / ranks_per_process !=
                              from.at(e["id"]) / ranks_per_process)
      between.insert(e["pid"].get<int64_t>() / ranks_per_process);
  ASSERT_EQ(static_cast<int64_t>(steps.size()), ranks);
  for (const auto& [rank, n] : steps) EXPECT_EQ(n, steps[0]) << rank;
  EXPECT_EQ(static_cast<int64_t>(between.size()), ranks / ranks_per_process);
  ASSERT_FALSE(result["waiting"].empty());
  EXPECT_TRUE(result["waiting"][0]["waited_for"].is_number())
      << result["waiting"][0];
  EXPECT_EQ(result["waiting"][0]["collectives"].get<int64_t>() % ranks, 0);
}

// Expects that each process of a failed run has left a trace of its one rank.
inline void expect_own_traces(const std::string& path, int64_t processes) {
  for (int64_t p = 0; p < processes; ++p) {
    const std::string own = p ? path + "." + std::to_string(p) : path;
    ASSERT_TRUE(std::filesystem::exists(own)) << own;
    const auto trace = nlohmann::json::parse(read_file(own));
    std::set<int64_t> ranks;
    for (const auto& e : trace["traceEvents"])
      ranks.insert(e["pid"].get<int64_t>());
    EXPECT_EQ(ranks, std::set<int64_t>{p});
    std::filesystem::remove(own);
  }
}

}  // namespace dtensor::testing
