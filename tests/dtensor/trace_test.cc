// SPDX-License-Identifier: Apache-2.0
#include "dtensor/trace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using Json = nlohmann::json;
using testing::error_of;

std::string path_of(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  return std::string(base ? base : "/tmp") + "/" + name;
}

// The JSON that a trace writes.
Json written(const Trace& trace) {
  const std::string path = path_of("trace.json");
  trace.write(path);
  std::ifstream in(path);
  return Json::parse(in);
}

struct Traced {
  explicit Traced(int64_t world, const std::function<void(Runtime&)>& fn,
                  int64_t most = Trace::kMostEvents)
      : trace(std::make_shared<Trace>(most)) {
    RunOptions options;
    options.world = world;
    options.trace = trace;
    run(options, fn);
    json = written(*trace);
    for (const Json& e : json["traceEvents"]) events.push_back(e);
  }
  // The events of category `sort` with that name ("": any name) on a rank's
  // track.
  std::vector<Json> of(int64_t rank, const std::string& sort,
                       const std::string& name = "", int thread = 0) const {
    std::vector<Json> found;
    for (const Json& e : events)
      if (e["ph"] == "X" && e["pid"] == rank && e["tid"] == thread &&
          e["cat"] == sort && (name.empty() || e["name"] == name))
        found.push_back(e);
    return found;
  }
  std::shared_ptr<Trace> trace;
  Json json;
  std::vector<Json> events;
};

int64_t ns(const Json& micros) {
  return static_cast<int64_t>(std::llround(micros.get<double>() * 1000));
}

// Checks what viewers require of a file: each arrow has two ends, and on every
// track, times are in order and spans are nested or do not overlap.
void expect_well_formed(const Traced& t) {
  std::map<std::pair<int64_t, int64_t>, int64_t> last;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> open;
  std::map<int64_t, std::string> arrows;
  std::map<int64_t, int64_t> begun;
  std::set<std::pair<int64_t, int64_t>> named;
  std::map<std::pair<int64_t, int64_t>,
           std::vector<std::pair<int64_t, int64_t>>>
      collectives;
  for (const Json& e : t.events)
    if (e["ph"] == "X" && e["cat"] == "collective")
      collectives[{e["pid"], e["tid"]}].push_back(
          {ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])});
  for (const Json& e : t.events) {
    const std::pair track(e["pid"].get<int64_t>(), e["tid"].get<int64_t>());
    const std::string ph = e["ph"];
    if (ph == "M") {
      if (e["name"] == "thread_name") named.insert(track);
      continue;
    }
    EXPECT_TRUE(named.contains(track)) << e;
    const int64_t at = ns(e["ts"]);
    EXPECT_GE(at, 0);
    EXPECT_GE(at, last[track]) << e;
    last[track] = at;
    auto& ends = open[track];
    while (!ends.empty() && ends.back() <= at && ph == "X") ends.pop_back();
    if (ph == "X") {
      const int64_t end = at + ns(e["dur"]);
      EXPECT_GE(end, at) << e;
      if (!ends.empty()) {
        EXPECT_LE(end, ends.back()) << e;
      }
      ends.push_back(end);
    } else {
      ASSERT_TRUE(ph == "s" || ph == "f") << e;
      EXPECT_EQ(e.value("bp", ""), ph == "f" ? "e" : "");
      arrows[e["id"].get<int64_t>()] += ph;
      // Both ends of an arrow lie within collectives.
      bool within = false;
      for (const auto& [begin, end] : collectives[track])
        within |= begin <= at && at <= end;
      EXPECT_TRUE(within) << e;
      int64_t& from = begun[e["id"].get<int64_t>()];
      if (ph == "s") from = at;
      if (ph == "f" && from > 0) {
        EXPECT_GE(at, from) << e;
      }
    }
  }
  for (const auto& [id, both] : arrows)
    EXPECT_TRUE(both == "sf" || both == "fs") << id << " " << both;
}

TEST(Trace, ShowsOperatorsAndWhatTheySend) {
  const Traced t(4, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
    const std::string path = "mlp.up";
    const PathScope scope(path);
    const DistTensor x = randn({8, 16}, mesh, "S0,S1"),
                     w = randn({16, 8}, mesh, "R,S0").set_requires_grad();
    DistTensor y;
    {
      const TraceSpan span("forward", 7);
      y = matmul(x, w).redistribute("S0,R");
    }
    grad(sum(y), {w});
  });
  expect_well_formed(t);
  for (int64_t r = 0; r < 4; ++r) {
    const auto products = t.of(r, "operator", "matmul");
    ASSERT_GE(products.size(), 1u);
    const Json& args = products[0]["args"];
    EXPECT_EQ(args["module"], "mlp.up");
    EXPECT_EQ(args["phase"], "forward");
    EXPECT_EQ(args["layouts"],
              "f32[8, 16](S0,S1), f32[16, 8](R,S0) -> f32[8, 8](S0,P)");
    const auto spans = t.of(r, "span", "forward");
    ASSERT_EQ(spans.size(), 1u);
    EXPECT_EQ(spans[0]["args"]["number"], 7);
    EXPECT_EQ(t.of(r, "span", "backward").size(), 1u);
    bool backward = false;
    for (const Json& op : t.of(r, "operator"))
      backward |= op["args"]["phase"] == "backward";
    EXPECT_TRUE(backward);
    const auto sent = t.of(r, "collective", "all-reduce");
    ASSERT_GE(sent.size(), 1u);
    EXPECT_EQ(sent[0]["args"]["layouts"],
              "f32[8, 8](S0,P) -> f32[8, 8](S0,R) on dp=2,tp=2");
    EXPECT_EQ(sent[0]["args"]["op"], "redistribute");
    EXPECT_EQ(sent[0]["args"]["ranks"], r < 2 ? "0,1" : "2,3");
    // Half of 4x8 numbers to be reduced, and half of the sums.
    EXPECT_EQ(sent[0]["args"]["received bytes"], 4 * 8 * 4);
    EXPECT_EQ(sent[0]["args"]["sequence"], 1);
  }
}

// The trace has as many collectives as RankContext::events, with the same
// bytes.
TEST(Trace, HasEveryCollective) {
  std::vector<std::vector<CommEvent>> events(3);
  const Traced t(3, [&](Runtime& rt) {
    rt.context().record = true;
    const Mesh mesh = rt.mesh();
    DistTensor x = randn({7, 5}, mesh, "S0");
    for (int i = 0; i < 20; ++i)
      for (const char* to : {"S1", "R", "S0"}) x = x.redistribute(to);
    DistTensor y = x.redistribute_async("R");
    y.local();
    events[static_cast<size_t>(rt.rank())] = std::move(rt.context().events);
  });
  expect_well_formed(t);
  for (int64_t r = 0; r < 3; ++r) {
    std::set<int64_t> numbers;
    int64_t bytes = 0, traced_bytes = 0;
    for (const CommEvent& e : events[static_cast<size_t>(r)]) {
      numbers.insert(e.collective);
      bytes += e.counted;
    }
    const auto own = t.of(r, "collective"),
               other = t.of(r, "collective", "", 1);
    EXPECT_EQ(other.size(), 1u);
    EXPECT_EQ(own.size() + other.size(), numbers.size());
    for (const auto& list : {own, other})
      for (const Json& c : list)
        traced_bytes += c["args"]["received bytes"].get<int64_t>();
    EXPECT_EQ(traced_bytes, bytes);
    EXPECT_EQ(t.of(r, "span", "wait for redistribute_async").size(), 1u);
  }
}

// Rank 1 comes late: arrows go from it to the others, and the table names it.
TEST(Trace, ShowsWhoWasWaitedFor) {
  constexpr auto kLate = std::chrono::milliseconds(300);
  const Traced t(3, [&](Runtime& rt) {
    Communicator& all = rt.context().communicator({0, 1, 2});
    all.barrier({StepKind::kBarrier, "begin"});
    if (rt.rank() == 1) std::this_thread::sleep_for(kLate);
    all.barrier({StepKind::kBarrier, "meet"});
  });
  expect_well_formed(t);
  int64_t arrows = 0;
  const Json late = t.of(1, "collective", "barrier").back();
  EXPECT_EQ(late["args"]["op"], "meet");
  for (const Json& e : t.events)
    if (e["ph"] == "s" && ns(e["ts"]) == ns(late["ts"])) {
      ++arrows;
      EXPECT_EQ(e["pid"], 1);
    }
  EXPECT_EQ(arrows, 2);
  const std::vector<Trace::Waiting> rows = t.trace->waiting();
  ASSERT_GE(rows.size(), 2u);
  EXPECT_EQ(rows[0].op, "meet");
  EXPECT_EQ(rows[0].phase, "forward");
  EXPECT_FALSE(rows[0].other_thread);
  EXPECT_EQ(rows[0].collectives, 3);
  EXPECT_EQ(rows[0].last, 1);
  // Two ranks waited for almost as long as rank 1 was late.
  EXPECT_GT(rows[0].seconds, 0.4);
  EXPECT_GT(rows[0].longest, 0.2);
  EXPECT_LE(rows[0].longest, rows[0].seconds);
  EXPECT_GT(rows[0].share, 0.3);
  EXPECT_LE(rows[0].share, 1);
  const std::string table = t.trace->waiting_table();
  EXPECT_NE(table.find("meet"), table.npos) << table;
  EXPECT_NE(table.find("total"), table.npos) << table;
  const auto json = t.trace->waiting_json();
  EXPECT_EQ(json[0]["op"], "meet");
  EXPECT_EQ(json[0]["waited_for"], 1);
  EXPECT_EQ(json[0]["collectives"], 3);
}

// The table has the first twelve rows, the sum of the others, and the total.
TEST(Trace, TheTableSumsAllRows) {
  constexpr int kOps = 15;
  std::vector<std::string> ops;
  for (int i = 0; i < kOps; ++i) ops.push_back("op" + std::to_string(i));
  const Traced t(2, [&](Runtime& rt) {
    Communicator& both = rt.context().communicator({0, 1});
    for (const std::string& op : ops) both.barrier({StepKind::kBarrier, op});
  });
  const std::string table = t.trace->waiting_table();
  const auto collectives = [&](const std::string& row) {
    const size_t at = table.find(row);
    return at == table.npos ? -1 : std::atoi(&table[at + row.size()]);
  };
  EXPECT_EQ(t.trace->waiting().size(), size_t{kOps});
  EXPECT_EQ(collectives("(3 others)"), 2 * 3) << table;
  EXPECT_EQ(collectives("total"), 2 * kOps) << table;
}

TEST(Trace, KeepsTheFirstEvents) {
  constexpr int64_t kMost = 1024, kEach = 2000;
  const Traced t(
      2,
      [](Runtime& rt) {
        Communicator& both = rt.context().communicator({0, 1});
        for (int i = 0; i < kEach; ++i)
          both.barrier({StepKind::kBarrier, "many"});
      },
      kMost);
  expect_well_formed(t);
  const auto kept = t.of(0, "collective").size() + t.of(1, "collective").size();
  EXPECT_EQ(kept, kMost);
  EXPECT_EQ(t.trace->dropped(), 2 * kEach - kMost);
  EXPECT_GT(t.trace->dropped_from(), 0);
  EXPECT_EQ(t.json["otherData"]["events not kept"], 2 * kEach - kMost);
  // Waiting is counted all the same.
  EXPECT_EQ(t.trace->waiting()[0].collectives, 2 * kEach);
  EXPECT_EQ(error_of([] { Trace none(-1); }),
            "[trace] the number of events to keep is -1; write 0 or more");
}

// A second run continues on the same tracks.
TEST(Trace, ShowsRunsOneAfterTheOther) {
  RunOptions options;
  options.world = 2;
  options.trace = std::make_shared<Trace>();
  for (int i = 0; i < 2; ++i)
    run(options, [](Runtime& rt) {
      rt.context().communicator({0, 1}).barrier({StepKind::kBarrier, "meet"});
    });
  EXPECT_EQ(options.trace->dropped(), 0);
  EXPECT_EQ(options.trace->dropped_from(), 0);
  const Json json = written(*options.trace);
  int64_t barriers = 0;
  for (const Json& e : json["traceEvents"]) barriers += e["ph"] == "X";
  EXPECT_EQ(barriers, 4);
}

// A run that fails has a trace too, which shows the failure.
TEST(Trace, ShowsWhatFailed) {
  RunOptions options;
  options.world = 2;
  options.trace = std::make_shared<Trace>();
  error_of([&] {
    run(options, [](Runtime& rt) {
      if (rt.rank() == 1) fail("test", "enough");
      rt.context().communicator({0, 1}).barrier({StepKind::kBarrier, "meet"});
    });
  });
  bool threw = false;
  const Json json = written(*options.trace);
  for (const Json& e : json["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "barrier")
      threw = e["args"]["threw"] && !e["args"].contains("waited us");
  EXPECT_TRUE(threw);
  EXPECT_NE(error_of([&] {
              options.trace->write("/no/such/file");
            }).find("[trace] cannot write /no/such/file: "),
            std::string::npos);
}

// With a trace, other observers are called as without one.
TEST(Trace, IsOneOfSeveralObservers) {
  struct Count : Observer {
    explicit Count(int& c) : calls(c) {}
    void begins(const Collective&) override { calls += 1; }
    void agreed(const Collective&) noexcept override { calls += 10; }
    void ends(const Collective&) noexcept override { calls += 100; }
    int& calls;
  };
  int calls[2] = {};
  RunOptions options;
  options.world = 2;
  options.trace = std::make_shared<Trace>();
  run(options, [&](Runtime& rt) {
    Count count(calls[rt.rank()]);
    const Observing observing(rt.context(), count);
    rt.context().communicator({0, 1}).barrier({StepKind::kBarrier, "meet"});
  });
  EXPECT_EQ(calls[0], 111);
  EXPECT_EQ(calls[1], 111);
}

// Without a trace nobody notes anything.
TEST(Trace, IsOffByDefault) {
  run(1, [](Runtime& rt) {
    const TraceSpan span("nobody");
    EXPECT_TRUE(rt.context().observers.empty());
  });
}

}  // namespace
}  // namespace dtensor
