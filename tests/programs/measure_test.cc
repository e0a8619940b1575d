// SPDX-License-Identifier: Apache-2.0
#include "programs/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "programs/calibration.h"

namespace dtensor::examples {
namespace {

using Sizes = std::map<std::pair<StepKind, AxisMask>, std::vector<int64_t>>;

Sizes sizes(const std::string& mesh, int64_t max_bytes) {
  Sizes all;
  for (const Probe& p : probes(Mesh::parse(mesh), max_bytes))
    if (!p.one_shot) all[{p.kind, p.axes}].push_back(p.bytes);
  return all;
}

TEST(Probes, CoverEveryKindAndAxis) {
  const Sizes all = sizes("dp=2,one=1,tp=3", 1 << 16);
  for (AxisMask axes : {0b001u, 0b100u, 0b101u})
    for (int k = 0; k < kNumStepKinds; ++k) {
      const auto kind = static_cast<StepKind>(k);
      // A permute needs more than one axis. A reduction that also moves what is
      // split needs a second one.
      const bool expected =
          sends(kind) && (axes == 0b101 || (kind != StepKind::kPermute &&
                                            kind != StepKind::kReduceExchange));
      EXPECT_EQ(all.count({kind, axes}), expected ? 1u : 0u)
          << name(kind) << " over " << axes;
    }
  EXPECT_EQ(all.size(), 5u + 5u + 7u) << "or over other axes";
}

TEST(Probes, GoFromSmallToLarge) {
  for (const char* mesh : {"2", "2x2", "5", "3x4"})
    for (const auto& [series, bytes] : sizes(mesh, 1 << 20)) {
      EXPECT_LE(bytes.front(), 2048) << mesh;
      EXPECT_GT(bytes.back(), 700'000) << mesh;
      EXPECT_LT(bytes.back(), 1'500'000) << mesh;
      for (size_t i = 1; i < bytes.size(); ++i) {
        EXPECT_GT(bytes[i], bytes[i - 1]);
        EXPECT_LE(bytes[i], 9 * bytes[i - 1]);
      }
    }
}

// Groups of two ranks have no one-shot probes: they receive as much either way.
TEST(Probes, AllReducesOfMoreThanTwoRanksAreThereTwice) {
  for (const auto& [mesh, groups] :
       {std::pair("2", 0), {"2x2", 1}, {"3x2", 2}, {"3x4", 3}}) {
    const auto list = probes(Mesh::parse(mesh), 1 << 14);
    std::map<AxisMask, size_t> again;
    for (const Probe& p : list) {
      if (!p.one_shot) {
        EXPECT_TRUE(again.empty()) << "one-shot ones come last";
        continue;
      }
      ++again[p.axes];
      EXPECT_TRUE(std::any_of(list.begin(), list.end(), [&](const Probe& q) {
        return !q.one_shot && q.from == p.from && q.to == p.to &&
               q.bytes == p.bytes && q.kind == StepKind::kAllReduce;
      }));
    }
    EXPECT_EQ(again.size(), static_cast<size_t>(groups)) << mesh;
    for (const auto& [axes, count] : again) {
      const auto once = sizes(mesh, 1 << 14).at({StepKind::kAllReduce, axes});
      EXPECT_EQ(count, once.size());
    }
  }
}

// one_shot_bytes is the size up to which one-shot was faster for all groups,
// for all smaller sizes too.
TEST(Calibration, OneShotUpToTheCrossing) {
  const auto list = probes(Mesh::parse("3x4"), 1 << 16);
  const auto crossing = [&](auto&& faster) {
    std::vector<double> us;
    for (const Probe& p : list) us.push_back(p.one_shot && faster(p) ? 1 : 2);
    const CostTable cost = calibrate(list, us).cost;
    // The prices are those of the chunked all-reduces.
    EXPECT_EQ(cost.link(StepKind::kAllReduce, 1).alpha_ps, 2'000'000);
    return cost.one_shot_bytes;
  };
  const auto part = [](const Probe& p) { return p.from->largest_part_bytes(); };
  EXPECT_EQ(crossing([](const Probe&) { return false; }), 0);
  int64_t most = 0, below = 0;
  for (const Probe& p : list) {
    if (!p.one_shot) continue;
    most = std::max(most, part(p));
    if (part(p) <= 4096) below = std::max(below, part(p));
  }
  EXPECT_EQ(crossing([](const Probe&) { return true; }), most);
  EXPECT_EQ(crossing([&](const Probe& p) { return part(p) <= 4096; }), below);
  EXPECT_EQ(crossing([&](const Probe& p) { return part(p) > 4096; }), 0);
  EXPECT_LT(crossing([](const Probe& p) { return p.axes == 1; }), most);
}

// The most that a rank receives, computed from the layouts alone.
TEST(Probes, CountBytesAsPlansDo) {
  for (const Probe& p : probes(Mesh::parse("a=2,b=3"), 1 << 14)) {
    const Mesh& mesh = p.from->mesh();
    int64_t most = 0;
    for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
      const Coord at = mesh.coordinate(r);
      const Region have = p.from->region(at), want = p.to->region(at);
      int64_t summands = 1;
      for (const Partial& partial : p.from->layout().partials)
        summands *= mesh.axis_size(partial.axis);
      most = std::max(most, summands * volume(want) - overlap(have, want));
    }
    if (p.kind == StepKind::kAllReduce)
      most = all_reduce_elements(numel(p.from->shape()), mesh.size_of(p.axes));
    EXPECT_EQ(p.bytes, 4 * most)
        << name(p.kind) << " over " << p.axes << ": " << p.from->to_string()
        << " to " << p.to->to_string();
  }
}

TEST(Measure, TakesLongerForMore) {
  std::vector<Probe> list;
  for (const Probe& p : probes(Mesh::parse("2"), 1 << 24))
    if (p.kind == StepKind::kAllGather) list.push_back(p);
  RunOptions options;
  options.world = 2;
  options.mesh = "2";
  const std::vector<double> us = measure(list, options, 3);
  ASSERT_EQ(us.size(), list.size());
  for (double x : us) EXPECT_GT(x, 0);
  // 16 MiB take longer than 64 bytes on any machine.
  EXPECT_GT(us.back(), us.front());
}

}  // namespace
}  // namespace dtensor::examples
