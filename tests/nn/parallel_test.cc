// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/parallel.h"

#include <gtest/gtest.h>

#include <set>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

TEST(Parallel, Patterns) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "a.b"));
  EXPECT_TRUE(matches("*.weight", "a.b.weight"));
  EXPECT_TRUE(matches("*.h.*.c_fc.*", "t.h.0.mlp.c_fc.bias"));
  EXPECT_TRUE(matches("*ab*ab", "abxabab"));
  EXPECT_TRUE(matches("lm_head.weight", "lm_head.weight"));
  EXPECT_FALSE(matches("*.weight", "weight"));
  EXPECT_FALSE(matches("*.weight", "a.weights"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("*.c_fc.weight", "a.c_fcXweight"));
}

TEST(Parallel, TheFirstMatchDecides) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const ParallelPlan plan = {{"a.*", {{"tp", Shard(1)}}},
                             {"*.weight", {{"dp", Shard(0)}}}};
  const Shape shape = {4, 6};
  EXPECT_EQ(layout_of(plan, "a.weight", mesh, shape).to_string(mesh), "R,S1");
  EXPECT_EQ(layout_of(plan, "b.weight", mesh, shape).to_string(mesh), "S0,R");
  EXPECT_EQ(layout_of(plan, "b.bias", mesh, shape).to_string(mesh), "R,R");
}

TEST(Parallel, WhatDoesNotFitIsNamed) {
  const Mesh mesh = Mesh::parse("tp=2");
  const auto error = [&](Placements p) -> std::string {
    try {
      layout_of({{"*.w", p}}, "m.w", mesh, {4});
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const Placements& p :
       {Placements{{"tp", Shard(1)}}, Placements{{"pp", Shard(0)}},
        Placements{{"tp", PartialOf()}}}) {
    EXPECT_NE(error(p).find("*.w"), std::string::npos) << error(p);
    EXPECT_NE(error(p).find("m.w"), std::string::npos) << error(p);
  }
}

TEST(Parallel, HeadsStayWhole) {
  const Mesh mesh = Mesh::parse("tp=4");
  const ModelConfig config{
      .name = "llama", .hidden = 24, .heads = 6, .kv_heads = 2};
  const ParallelPlan plan = default_plan(config, mesh);
  const auto sizes = [&](std::string name, Shape shape, int dim) {
    const Layout l = layout_of(plan, name, mesh, shape);
    std::vector<int64_t> out;
    for_each_coord(mesh, mesh.all_axes(), [&](const Coord& c) {
      out.push_back(l.dims[size_t(dim)].local_size(mesh, c));
    });
    return out;
  };
  using V = std::vector<int64_t>;
  const std::string at = "model.layers.0.self_attn.";
  EXPECT_EQ(sizes(at + "q_proj.weight", {24, 24}, 0), (V{4, 8, 4, 8}));
  EXPECT_EQ(sizes(at + "o_proj.weight", {24, 24}, 1), (V{4, 8, 4, 8}));
  EXPECT_EQ(sizes(at + "k_proj.weight", {8, 24}, 0), (V{0, 4, 0, 4}));
  EXPECT_EQ(sizes("lm_head.weight", {256, 24}, 0), (V{64, 64, 64, 64}));
  EXPECT_EQ(sizes("model.norm.weight", {24}, 0), (V{24, 24, 24, 24}));
}

TEST(Parallel, AxesByWhatTheySplit) {
  const Mesh mesh = Mesh::parse("tp=2,fsdp=2,dp=2");
  EXPECT_EQ(axis_that(kSplitsMatrices, mesh), 0);
  EXPECT_EQ(axis_that(kSplitsParameters, mesh), 1);
  EXPECT_EQ(axis_that(kSplitsBatch, mesh), 2);  // first in model_axes()
  EXPECT_EQ(axis_that(kSplitsStages, mesh), -1);
  // Every axis has a name and something to split, and no two are alike.
  std::set<std::string_view> names;
  for (const ModelAxis& a : model_axes()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_NE(a.splits, 0) << a.name;
    const Mesh one({{std::string(a.name), 2}});
    EXPECT_EQ(batch_placements(one).resolve(one, {4, 6}).to_string(one),
              a.splits & kSplitsBatch ? "S0" : "R");
  }
}

TEST(Parallel, UnknownAxesAreRefused) {
  EXPECT_EQ(dtensor::testing::error_of(
                [] { default_plan({}, Mesh::parse("dp=2,qq=2")); }),
            "[plan] mesh dp=2,qq=2 has an axis \"qq\", but models use only pp "
            "(splits the blocks into stages), dp (splits the batch), fsdp "
            "(splits the batch, and with ZeRO the parameters), ep (splits "
            "experts, and the batch), cp (splits sequences), tp (splits "
            "matrices); rename it to one of these that the mesh lacks");
  EXPECT_TRUE(default_plan({}, Mesh::parse("dp=2,pp=2")).empty());
  EXPECT_TRUE(default_plan({}, Mesh::parse("dp=2")).empty());
  EXPECT_FALSE(default_plan({}, Mesh::parse("tp=2")).empty());
}

// Over nine ranks, two granules are split alike in both orders of the axes. The
// canonical order is not the one that gathering over dp needs.
TEST(Parallel, ZeroLeavesWholeWhatGatheringWouldNotRestore) {
  const ParallelPlan plan =
      zero({{"*.bias", Placements{{"tp", Shard(0, 128)}}}}, 3);
  for (const auto& [mesh_text, rest] :
       {std::pair{"dp=3,tp=3", "R,S0/128"}, {"dp=3,tp=4", "[{tp,dp}/128]"}}) {
    const Mesh mesh = Mesh::parse(mesh_text);
    const ParameterLayouts l = layouts_of(plan, "q.bias", mesh, {256});
    EXPECT_EQ(l.rest.to_string(mesh), rest);
    EXPECT_EQ(l.use.to_string(mesh), "R,S0/128");
  }
}

}  // namespace
}  // namespace dtensor::nn
