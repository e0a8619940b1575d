// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/received.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/placement/traffic.h"

namespace dtensor {
namespace {

const Spec* spec(const Mesh& mesh, const Shape& shape, const std::string& text,
                 DType dtype = DType::kF32) {
  return Spec::get(mesh, shape, parse_layout(text, mesh, shape), dtype);
}

// Compares all steps of the plan with the schedules of all ranks. Returns how
// many steps send.
int check(const Spec* from, const Spec* to) {
  int sent = 0;
  for (const Step& s : plan(from, to, {}).steps) {
    int64_t expected = 0;
    const Mesh& mesh = s.to->mesh();
    for (int64_t r = 0; r < mesh.num_ranks(); ++r)
      expected += testing::traffic(s, mesh.world_rank(r)).received;
    EXPECT_EQ(received_by_all(s, {}), expected) << to_string(s);
    sent += sends(s.kind);
  }
  return sent;
}

TEST(Received, DimensionsAreTogetherThroughOthers) {
  const AxisMask axes[] = {0b0001, 0b0110, 0, 0b0011, 0b1000};
  const auto groups = dims_together(axes);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].dims, (std::vector<size_t>{2}));
  EXPECT_EQ(groups[0].axes, 0u);
  // Dimension 3 joins 0 and 1, which share no axis.
  EXPECT_EQ(groups[1].dims, (std::vector<size_t>{3, 0, 1}));
  EXPECT_EQ(groups[1].axes, 0b0111u);
  EXPECT_EQ(groups[2].dims, (std::vector<size_t>{4}));
  EXPECT_TRUE(dims_together({}).empty());
}

TEST(Received, IsTheSumOfWhatEachRankReceives) {
  int sent = 0;
  for (const char* mesh_text : {"3", "5", "2x3", "5x3", "4x3"}) {
    const Mesh mesh = Mesh::parse(mesh_text);
    std::vector<std::string> texts = {
        "R", "S0", "S1", "P", "P(mean)", "S0/2", "[(3 4{a0}),{}]"};
    if (mesh.num_axes() > 1)
      texts = {"R,R", "S0,S0", "S0,S1", "S1,S0",    "R,S1",
               "P,R", "P,S1",  "P,P",   "R,P(max)", "[{a1,a0},{}]"};
    for (const Shape& shape : {Shape{12, 10}, Shape{2, 30}})
      for (const std::string& a : texts)
        for (const std::string& b : texts) {
          if (shape[0] == 2 && (a + b).find('[') != a.npos) continue;
          if (b.find('P') != b.npos && a != b) continue;
          sent += check(spec(mesh, shape, a), spec(mesh, shape, b));
        }
  }
  EXPECT_GT(sent, 200);
}

TEST(Received, BetweenMeshesRanksMayBeInBoth) {
  const Mesh here = Mesh::parse("a=2,b=2");
  int sent = 0;
  for (const char* other : {"x=3 of ranks 1,4,2", "x=2 of ranks 7,8", "x=5"})
    for (const char* a : {"S0,S1", "R,S0", "R,R", "P,S1"})
      for (const char* b : {"R", "S0", "S1"})
        sent +=
            check(spec(here, {7, 9}, a), spec(Mesh::parse(other), {7, 9}, b));
  EXPECT_GT(sent, 30);
}

TEST(Received, OneShotAllReducesReadAllCopies) {
  const Mesh mesh = Mesh::parse("dp=2,tp=5");
  const Step step{.kind = StepKind::kAllReduce,
                  .axes = 2,
                  .from = spec(mesh, {9}, "S0,P"),
                  .to = spec(mesh, {9}, "S0,R")};
  CostTable cost;
  cost.one_shot_bytes = 0;
  EXPECT_EQ(received_by_all(step, cost), 2 * 4 * 9 * 4);
  cost.one_shot_bytes = 1000;
  EXPECT_EQ(received_by_all(step, cost), 5 * 4 * 9 * 4);
}

TEST(Received, IsAsLargeAsANumberCanBe) {
  const Mesh mesh = Mesh::parse("tp=4096");
  const Shape shape{int64_t{1} << 58};
  const Step step{.kind = StepKind::kAllGather,
                  .axes = 1,
                  .from = spec(mesh, shape, "S0"),
                  .to = spec(mesh, shape, "R")};
  EXPECT_EQ(received_by_all(step, {}), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace dtensor
