// SPDX-License-Identifier: Apache-2.0
#include "dtensor/flight.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "dtensor/comm/flight_ring.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;
using testing::error_of;

// The path of a folder for the running test, which does not exist yet.
std::string fresh_folder(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(base ? base : "/tmp") + "/" + name;
  std::filesystem::remove_all(path);
  return path;
}

Json read_json(const std::string& path) {
  std::ifstream in(path);
  return Json::parse(in);
}

Json file_of(const std::string& folder, int64_t rank) {
  return read_json(folder + "/rank-" + std::to_string(rank) + ".json");
}

// A made-up collective to pass to a FlightRing.
struct Made {
  explicit Made(uint64_t sequence, std::string_view op = "add",
                int64_t elements = 2)
      : buffer{ReduceOp::kMax, DType::kF64, nullptr, elements},
        call{StepKind::kAllReduce, op},
        collective{.call = &call,
                   .sequence = sequence,
                   .fingerprint = 7 * sequence,
                   .buffers = {&buffer, 1}} {}
  Buffer buffer;
  Call call;
  Collective collective;
};

TEST(FlightRing, SaysWhatWasCalled) {
  FlightRing ring;
  EXPECT_TRUE(ring.snapshot().entries.empty());
  EXPECT_EQ(ring.add_group({0, 1}), 0u);
  EXPECT_EQ(ring.add_group({0, 2, 5}), 1u);
  EXPECT_EQ(ring.group(1), (std::vector<int64_t>{0, 2, 5}));
  EXPECT_TRUE(ring.snapshot().entries.empty());
  EXPECT_EQ(ring.newest().number, 0u);
  const int64_t before = FlightRing::now();
  Made m(3, "matmul");
  m.collective.group = 1;
  ring.begun(m.collective);
  const FlightRing::Snapshot all = ring.snapshot();
  EXPECT_EQ(all.groups, (std::vector<std::vector<int64_t>>{{0, 1}, {0, 2, 5}}));
  ASSERT_EQ(all.entries.size(), 1u);
  const FlightEntry& e = all.entries[0];
  EXPECT_EQ(e.number, 1u);
  EXPECT_EQ(e.group, 1u);
  EXPECT_EQ(e.sequence, 3u);
  EXPECT_EQ(e.fingerprint, 21u);
  EXPECT_EQ(e.kind, StepKind::kAllReduce);
  EXPECT_EQ(e.reduce_op, ReduceOp::kMax);
  EXPECT_EQ(e.dtype, DType::kF64);
  EXPECT_EQ(e.tensors, 1u);
  EXPECT_EQ(e.bytes, 16);
  EXPECT_EQ(e.op, "matmul");
  EXPECT_LE(before, e.begun);
  EXPECT_LE(e.begun, all.now);
}

TEST(FlightRing, SaysHowFarItIs) {
  FlightRing ring;
  ring.add_group({0, 1});
  const auto last = [&] { return ring.snapshot().entries.back(); };
  Made small(1), large(2, "add", FlightRing::kTimedBytes / 8);
  ring.begun(small.collective);
  EXPECT_FALSE(last().agreed || last().ended || last().threw);
  ring.agreed();
  EXPECT_TRUE(last().agreed);
  EXPECT_FALSE(last().ended || last().threw);
  ring.ended();
  EXPECT_TRUE(last().agreed && last().ended);
  EXPECT_FALSE(last().threw);
  EXPECT_EQ(last().over, 0);  // only large ones are timed
  ring.begun(large.collective);
  EXPECT_FALSE(last().agreed || last().ended);
  ring.agreed();
  ring.ended();
  EXPECT_GE(last().over, last().begun);
  ring.begun(small.collective);
  ring.threw();
  EXPECT_TRUE(last().ended && last().threw);
  EXPECT_FALSE(last().agreed);
  EXPECT_GE(last().over, last().begun);
}

TEST(FlightRing, CutsLongNames) {
  FlightRing ring;
  ring.add_group({0, 1});
  const std::string text(100, 'x');
  for (size_t n : {0, 1, 7, 8, 9, 16, 62, 63, 64, 100}) {
    Made m(1, std::string_view(text).substr(0, n));
    ring.begun(m.collective);
    EXPECT_EQ(ring.newest().op,
              text.substr(0, std::min(n, FlightRing::kOpLetters)));
    EXPECT_EQ(ring.newest().number, ring.snapshot().entries.back().number);
  }
}

TEST(FlightRing, KeepsTheLast) {
  FlightRing ring;
  ring.add_group({0, 1});
  const uint64_t calls = 3 * FlightRing::kEntries + 5;
  for (uint64_t i = 1; i <= calls; ++i) {
    Made m(i);
    ring.begun(m.collective);
    ring.agreed();
    ring.ended();
  }
  const auto entries = ring.snapshot().entries;
  ASSERT_EQ(entries.size(), FlightRing::kEntries);
  for (size_t i = 0; i < entries.size(); ++i)
    EXPECT_EQ(entries[i].sequence, calls - FlightRing::kEntries + 1 + i);
}

// Every entry that is read is one that was written, never a mix of two.
TEST(FlightRing, IsReadWhileItIsWritten) {
  FlightRing ring;
  ring.add_group({0, 1});
  const std::jthread writer([&](const std::stop_token& stop) {
    for (uint64_t i = 1; !stop.stop_requested(); ++i) {
      const std::string op(i % 64, static_cast<char>('a' + i % 26));
      Made m(i, op, static_cast<int64_t>(i % 1000));
      ring.begun(m.collective);
      ring.agreed();
      ring.ended();
    }
  });
  uint64_t newest = 0;
  // (The writer may begin late.)
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < 300 || newest <= FlightRing::kEntries; ++round) {
    ASSERT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(60));
    for (const FlightEntry& e : ring.snapshot().entries) {
      const uint64_t i = e.sequence;
      ASSERT_EQ(e.number, i);
      ASSERT_EQ(e.fingerprint, 7 * i);
      ASSERT_EQ(e.bytes, static_cast<int64_t>(i % 1000) * 8);
      ASSERT_EQ(e.op, std::string(i % 64, static_cast<char>('a' + i % 26)));
      newest = std::max(newest, i);
    }
    std::this_thread::yield();
  }
}

// A rank's file has the collectives of both of its threads, a lane for each.
TEST(Flight, HasEveryCollectiveOfARun) {
  RunOptions options;
  options.world = 4;
  const std::string folder = fresh_folder("every");
  std::vector<std::set<int64_t>> numbers(4);
  const int64_t begin = FlightRing::now();
  run(options, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    const Mesh mesh = rt.mesh({{"dp", 2}, {"tp", 2}});
    ctx.record = true;
    DistTensor x = randn({8, 8}, mesh, parse_layout("S0,S1", mesh, {8, 8}));
    for (const char* to : {"R,R", "S0,R", "R,S1", "S1,S0"})
      x = x.redistribute(to);
    const DistTensor later = x.redistribute_async("R,R");
    later.local();
    // Each event is a collective; tensors that move together share a number.
    for (const CommEvent& e : ctx.events)
      numbers[static_cast<size_t>(rt.rank())].insert(e.collective);
    x.redistribute("S0,S1");
    if (rt.rank() == 3) {
      make_flight_folder("test", folder);
      EXPECT_GE(write_flights(folder, "a test"), 4);
    }
    Call call{StepKind::kBarrier, "end"};
    ctx.communicator(mesh, mesh.all_axes()).barrier(call);
  });
  const int64_t took = FlightRing::now() - begin;
  const Json mine = file_of(folder, 3);
  EXPECT_EQ(mine["rank"], 3);
  EXPECT_EQ(mine["world"], 4);
  EXPECT_EQ(mine["why"], "a test");
  EXPECT_EQ(mine["state"], "runs");
  const Json &own = mine["lanes"][0], &other = mine["lanes"][1];
  EXPECT_EQ(other["collectives"].size(), 1u);
  EXPECT_EQ(other["collectives"][0]["kind"], "all_gather");
  // (The move to S0,S1 came after the events were counted.)
  EXPECT_EQ(own["collectives"].size() + other["collectives"].size(),
            numbers[3].size() + 1);
  for (const Json& lane : {own, other}) {
    EXPECT_LE(lane["now_ns"], mine["written_ns"]);
    for (const Json& c : lane["collectives"]) {
      EXPECT_EQ(c["state"], "ended");
      EXPECT_FALSE(c.contains("reduce")) << c["kind"] << " adds nothing";
      EXPECT_LE(c["begun_ns"], lane["now_ns"]);
      EXPECT_GE(c["begun_ns"], lane["now_ns"].get<int64_t>() - took);
      const auto ranks = lane["groups"]
                             .at(c["group"].get<size_t>())
                             .get<std::vector<int64_t>>();
      EXPECT_EQ(std::count(ranks.begin(), ranks.end(), 3), 1);
    }
  }
}

TEST(Flight, IsWrittenWhenARunFails) {
  RunOptions options;
  options.world = 3;
  options.flight = fresh_folder("fails/within");
  const std::string error = error_of([&] {
    run(options, [&](Runtime& rt) {
      Communicator& all = rt.context().communicator({0, 1, 2});
      all.barrier({StepKind::kBarrier, "first"});
      DT_CHECK(rt.rank() != 1, "test", "rank 1 has enough");
      all.barrier({StepKind::kBarrier, "second"});
    });
  });
  EXPECT_EQ(error, "[test] rank 1 has enough");
  for (int64_t r = 0; r < 3; ++r) {
    const Json file = file_of(options.flight, r);
    EXPECT_EQ(file["why"], "a failure");
    EXPECT_EQ(file["state"], "failed");
    const Json& calls = file["lanes"][0]["collectives"];
    ASSERT_EQ(calls.size(), r == 1 ? 1u : 2u);
    EXPECT_EQ(calls[0]["op"], "first");
    EXPECT_EQ(calls[0]["state"], "ended");
    if (r == 1) {
      EXPECT_EQ(file["error"], "[test] rank 1 has enough");
      continue;
    }
    EXPECT_EQ(calls[1]["op"], "second");
    EXPECT_EQ(calls[1]["state"], "threw");
    EXPECT_NE(file["error"].get<std::string>().find("rank 1 failed"),
              std::string::npos);
  }
  // The folder has no other file.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(options.flight),
                          std::filesystem::directory_iterator()),
            3);
}

// The first rank that fails writes the files of all ranks, and the next rank
// does not write them again. The run does, when all ranks have returned.
TEST(Flight, IsWrittenByTheFirstThatFails) {
  RunOptions options;
  options.world = 3;
  options.flight = fresh_folder("first");
  const auto there = [&] {
    return std::filesystem::exists(options.flight + "/rank-2.json");
  };
  const auto wait = [](int ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  std::atomic<bool> removed{false}, again{false};
  const std::string error = error_of([&] {
    run(options, [&](Runtime& rt) {
      if (rt.rank() == 0) fail("test", "rank 0 has enough");
      if (rt.rank() == 1) {
        while (!there()) wait(1);
        for (int64_t r = 0; r < 3; ++r)
          std::filesystem::remove(options.flight + "/rank-" +
                                  std::to_string(r) + ".json");
        removed = true;
        fail("test", "rank 1 too");
      }
      while (!removed) wait(1);
      for (int i = 0; i < 300 && !again; ++i) {
        again = there();
        wait(1);
      }
    });
  });
  EXPECT_NE(error.find("rank 0 has enough"), std::string::npos) << error;
  EXPECT_FALSE(again);
  EXPECT_TRUE(there());
}

// The file has one value a line, and it is valid even if an error is not UTF-8.
TEST(Flight, IsReadByPeople) {
  RunOptions options;
  options.flight = fresh_folder("people");
  error_of([&] { run(options, [](Runtime&) { fail("test", "a \xff b"); }); });
  EXPECT_EQ(file_of(options.flight, 0)["error"], "[test] a \uFFFD b");
  std::ifstream in(options.flight + "/rank-0.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(text.find("{\n \"format\": \"dtensor flight recorder\",\n"), 0u)
      << text;
  EXPECT_TRUE(text.ends_with("}\n")) << text;
}

TEST(Flight, IsNotWrittenWhenARunDoesNot) {
  RunOptions options;
  options.world = 2;
  options.flight = fresh_folder("succeeds");
  run(options, [&](Runtime& rt) {
    rt.context().communicator({0, 1}).barrier({StepKind::kBarrier, "only"});
  });
  EXPECT_TRUE(std::filesystem::is_empty(options.flight));
}

// The files are written without the help of ranks that wait.
TEST(Flight, IsWrittenWhileRanksWait) {
  RunOptions options;
  options.world = 2;
  const std::string folder = fresh_folder("waits");
  make_flight_folder("test", folder);
  std::atomic<bool> go{false};
  std::thread ranks([&] {
    run(options, [&](Runtime& rt) {
      Communicator& both = rt.context().communicator({0, 1});
      while (rt.rank() == 1 && !go) std::this_thread::yield();
      both.barrier({StepKind::kBarrier, "meet"});
    });
  });
  Json file;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (write_flights(folder, "a test") == 2) {
      file = file_of(folder, 0);
      if (!file["lanes"][0]["collectives"].empty()) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(file["lanes"][0]["collectives"][0]["state"], "waits");
  EXPECT_EQ(file["state"], "runs");
  EXPECT_TRUE(file_of(folder, 1)["lanes"][0]["collectives"].empty());
  go = true;
  ranks.join();
  EXPECT_EQ(write_flights(folder, "a test"), 0);  // nobody runs
}

// Writes the file between a collective's agreement and its end, while data
// moves.
TEST(Flight, TellsThatAllMembersAgreed) {
  struct Writer : Observer {
    explicit Writer(const std::string& f) : folder(f) {}
    void agreed(const Collective&) noexcept override {
      write_flights(folder, "a test");
    }
    const std::string& folder;
  };
  RunOptions options;
  options.world = 2;
  const std::string folder = fresh_folder("agreed");
  make_flight_folder("test", folder);
  options.observers = {std::make_shared<Writer>(folder)};  // of rank 0
  run(options, [](Runtime& rt) {
    rt.context().communicator({0, 1}).barrier({StepKind::kBarrier, "meet"});
  });
  const Json calls = file_of(folder, 0)["lanes"][0]["collectives"];
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0]["state"], "agreed");
}

TEST(Flight, NeedsAFolderThatCanBeWritten) {
  RunOptions options;
  options.flight = "/proc/none";
  bool ran = false;
  const std::string error =
      error_of([&] { run(options, [&](Runtime&) { ran = true; }); });
  EXPECT_FALSE(ran);
  EXPECT_NE(error.find("[run] cannot write to /proc/none: "), std::string::npos)
      << error;
}

// If the files cannot be written, the error says so after the reason of the
// failure.
TEST(Flight, SaysThatItCannotBeWritten) {
  RunOptions options;
  options.flight = fresh_folder("vanishes");
  const std::string error = error_of([&] {
    run(options, [&](Runtime&) {
      std::filesystem::remove_all(options.flight);
      fail("test", "enough");
    });
  });
  EXPECT_NE(error.find("[test] enough; and [flight] cannot write "),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace dtensor
