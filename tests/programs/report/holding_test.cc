// SPDX-License-Identifier: Apache-2.0
#include "programs/report/holding.h"

#include <gtest/gtest.h>

namespace dtensor::report {
namespace {

using Ranks = std::vector<int64_t>;

const Spec* spec(const std::string& mesh, const Shape& shape,
                 const std::string& layout) {
  const Mesh m = Mesh::parse(mesh);
  return Spec::get(m, shape, parse_layout(layout, m, shape), DType::kF32);
}

TEST(Holding, BoxesOfTwoCutDimensions) {
  const Holding h = holding(spec("2x2", {4, 5}, "S0,S1"), {0, 1});
  EXPECT_EQ(h.rows, (Ranks{0, 2, 4}));
  EXPECT_EQ(h.columns, (Ranks{0, 2, 5}));
  EXPECT_FALSE(h.sampled);
  EXPECT_EQ(h.at(0, 0), Ranks{0});
  EXPECT_EQ(h.at(0, 1), Ranks{1});
  EXPECT_EQ(h.at(1, 0), Ranks{2});
  EXPECT_EQ(h.at(1, 1), Ranks{3});
}

TEST(Holding, ReplicasShareABox) {
  const Holding h = holding(spec("2x2", {4, 5}, "R,S1"), {0, 1});
  EXPECT_EQ(h.rows, (Ranks{0, 4}));
  EXPECT_EQ(h.at(0, 0), (Ranks{0, 2}));
  EXPECT_EQ(h.at(0, 1), (Ranks{1, 3}));
}

TEST(Holding, IsThatOfTheFirstIndexOfTheOthers) {
  const Holding h = holding(spec("3", {3, 4, 4}, "S0"), {1, 2});
  ASSERT_EQ(h.holders.size(), 1u);
  EXPECT_EQ(h.at(0, 0), Ranks{0});
}

TEST(Holding, SamplesManyBoxesByTheirFirstIndex) {
  const Holding h = holding(spec("100", {1000}, "S0"), {-1, 0});
  EXPECT_TRUE(h.sampled);
  ASSERT_EQ(h.columns.size(), kMostCuts + 1);
  for (size_t c = 0; c < kMostCuts; ++c)
    EXPECT_EQ(h.at(0, c), Ranks{h.columns[c] / 10}) << h.columns[c];
}

TEST(Holding, OfAScalarAndOfNothing) {
  EXPECT_EQ(holding(spec("2", {}, "R"), {}).at(0, 0), (Ranks{0, 1}));
  EXPECT_TRUE(holding(spec("2", {0, 3}, "S1"), {0, 1}).holders.empty());
}

TEST(View, ShowsWhatIsCutBeforeWhatMovesBeforeWhatIsLong) {
  const auto view = [](const Shape& shape, const char* from, const char* to) {
    const View v = choose_view(spec("2", shape, from), spec("2", shape, to));
    return std::pair(v.rows, v.columns);
  };
  EXPECT_EQ(view({9, 4, 6, 2}, "S3", "S1"), std::pair(1, 3));
  EXPECT_EQ(view({9, 4, 6, 2}, "S3", "S3"), std::pair(0, 3));
  EXPECT_EQ(view({9}, "S0", "R"), std::pair(-1, 0));
  EXPECT_EQ(view({}, "R", "R"), std::pair(-1, -1));
}

TEST(HoldersText, SaysWhatTheRanksHoldTogether) {
  EXPECT_EQ(listed({8, 3, 1, 0, 2}), "0-3 8");
  EXPECT_EQ(listed({5, 4}), "4 5");
  EXPECT_EQ(holders_text(spec("2x2", {4}, "R,R"), {0, 1, 2, 3}), "0-3");
  EXPECT_EQ(holders_text(spec("2x2", {4}, "P,R"), {0, 1, 2, 3}),
            "(0 1) + (2 3)");
  EXPECT_EQ(holders_text(spec("2", {4}, "P(max)"), {0, 1}), "max(0, 1)");
  EXPECT_EQ(holders_text(spec("2x2", {4}, "P,P(max)"), {0, 1, 2, 3}),
            "combine(0, 1, 2, 3)");
  EXPECT_EQ(holders_text(spec("x=2 of ranks 5,3", {4}, "S0"), {1}), "3");
}

}  // namespace
}  // namespace dtensor::report
