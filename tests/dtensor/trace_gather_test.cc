// SPDX-License-Identifier: Apache-2.0
// Gathers the traces of a run whose ranks are in several processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "dtensor/comm/host_backend.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/trace.h"
#include "tests/dtensor/tcp_processes.h"

namespace dtensor {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr int64_t kSecond = 1'000'000'000;

// Two runs of four ranks, two in each of two processes. First rank 3 is late,
// then rank 0. The second process's clock is ahead of the first one's.
struct Traced {
  explicit Traced(const std::vector<std::string>& clocks, int64_t ahead = 0) {
    auto jobs = testing::tcp_jobs(2);
    std::vector<std::shared_ptr<Trace>> traces(2);
    testing::in_threads(2, [&](int p) {
      const auto k = static_cast<size_t>(p);
      traces[k] = std::make_shared<Trace>();
      RunOptions options;
      options.world = 4;
      options.trace = traces[k];
      options.backend = [&](int64_t world) {
        return std::make_shared<HostBackend>(world, 2, jobs[k].get());
      };
      for (int i = 0; i < 2; ++i) run(options, steps);
      if (clocks.empty())
        traces[k]->gather(*jobs[k]);
      else
        traces[k]->gather(*jobs[k], clocks[k], p * ahead);
    });
    testing::part(jobs);
    trace = traces[0];
    EXPECT_EQ(traces[1]->kept(), 0);
    EXPECT_TRUE(traces[1]->waiting().empty());
    const char* base = std::getenv("TEST_TMPDIR");
    const std::string path = std::string(base ? base : "/tmp") + "/trace.json";
    trace->write(path);
    std::ifstream in(path);
    json = Json::parse(in);
  }
  static void steps(Runtime& rt) {
    Communicator& all = rt.context().communicator({0, 1, 2, 3});
    all.barrier({StepKind::kBarrier, "begin"});
    if (rt.rank() == 3) std::this_thread::sleep_for(200ms);
    all.barrier({StepKind::kBarrier, "third"});
    if (rt.rank() == 0) std::this_thread::sleep_for(100ms);
    all.barrier({StepKind::kBarrier, "first"});
  }
  // The ranks where arrows from the collectives `op` end, one for each arrow.
  std::multiset<int64_t> ends(const std::string& op) const {
    std::map<int64_t, double> starts;  // of those arrows, by id
    std::multiset<int64_t> ranks;
    for (const Json& e : json["traceEvents"])
      if (e["ph"] == "s")
        for (const Json& c : json["traceEvents"])
          if (c["ph"] == "X" && c["pid"] == e["pid"] && c["ts"] == e["ts"] &&
              c["args"].value("op", "") == op)
            starts[e["id"]] = e["ts"];
    for (const Json& e : json["traceEvents"])
      if (e["ph"] == "f" && starts.contains(e["id"])) {
        ranks.insert(e["pid"].get<int64_t>());
        EXPECT_GE(e["ts"].get<double>(), starts[e["id"]]);
      }
    return ranks;
  }
  std::vector<double> times(int64_t rank) const {
    std::vector<double> all;
    for (const Json& e : json["traceEvents"])
      if (e["ph"] == "X" && e["pid"] == rank) all.push_back(e["ts"]);
    return all;
  }
  std::shared_ptr<Trace> trace;
  Json json;
};

// Checks that both runs have arrows from the late rank to all others.
void expect_arrows(const Traced& t) {
  EXPECT_EQ(t.ends("third"), (std::multiset<int64_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(t.ends("first"), (std::multiset<int64_t>{1, 1, 2, 2, 3, 3}));
  const auto rows = t.trace->waiting();
  ASSERT_GE(rows.size(), 2u);
  EXPECT_EQ(rows[0].op, "third");
  EXPECT_EQ(rows[0].collectives, 8);
  EXPECT_EQ(rows[0].last, 3);
  EXPECT_GT(rows[0].seconds, 2 * 3 * 0.15);
  EXPECT_EQ(rows[1].op, "first");
  EXPECT_EQ(rows[1].last, 0);
}

TEST(TraceGather, HasAllRanksAndArrowsBetweenThem) {
  const Traced t({});
  EXPECT_EQ(t.trace->kept(), 4 * 2 * 3);
  EXPECT_EQ(t.trace->dropped(), 0);
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto times = t.times(rank);
    EXPECT_EQ(times.size(), 6u);
    for (double at : times) EXPECT_GE(at, 0);
  }
  expect_arrows(t);
}

// The clocks of two machines, one of them 5 s ahead, are compared.
TEST(TraceGather, ComparesClocks) {
  for (const int64_t ahead : {5 * kSecond, -5 * kSecond})
    expect_arrows(Traced({"one", "another"}, ahead));
  // Clocks without a name may be different ones.
  expect_arrows(Traced({"", ""}, 5 * kSecond));
}

// Clocks with the same name are one clock, so the 5 s stay in the trace. Its
// times count from the process that began first.
TEST(TraceGather, OneClockIsNotCompared) {
  for (const int64_t ahead : {5 * kSecond, -5 * kSecond}) {
    const Traced t({"one", "one"}, ahead);
    const double first = t.times(0)[0], second = t.times(2)[0];
    EXPECT_NEAR(second - first, static_cast<double>(ahead) / 1e3, 0.3e6);
    EXPECT_GE(std::min(first, second), 0);
    EXPECT_LT(std::min(first, second), 1e6);
  }
}

}  // namespace
}  // namespace dtensor
