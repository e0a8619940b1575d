// SPDX-License-Identifier: Apache-2.0
#include "programs/report/flow_matrix.h"

#include <gtest/gtest.h>

#include <numeric>

namespace dtensor::report {
namespace {

TEST(FlowMatrix, SumsByRank) {
  const std::vector<int64_t> ranks = {2, 5, 7};
  const RankGroups groups(ranks);
  EXPECT_FALSE(groups.shared());
  const std::vector<Flow> flows = {
      {2, 5, 10}, {5, 2, 20}, {7, 7, 99}, {2, 5, 1}, {7, 5, 4}};
  const FlowSums s = sum_flows(flows, groups);
  EXPECT_EQ(s.bytes, (std::vector<int64_t>{0, 11, 0, 20, 0, 0, 0, 4, 0}));
  EXPECT_EQ(s.kept, (std::vector<int64_t>{0, 0, 99}));
  EXPECT_EQ(s.sent, (std::vector<int64_t>{11, 20, 4}));
  EXPECT_EQ(s.received, (std::vector<int64_t>{20, 15, 0}));
  EXPECT_EQ(s.most, 20);
  EXPECT_EQ(s.most_sum, 20);
}

TEST(FlowMatrix, NeighboursShareARow) {
  std::vector<int64_t> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 100);
  const RankGroups groups(ranks, 2);
  EXPECT_TRUE(groups.shared());
  EXPECT_EQ(groups.text(0), "100-103");
  EXPECT_EQ(groups.text(1), "104-107");
  EXPECT_NE(groups.colour(0), groups.colour(1));
  // Bytes that stay within a group are still sent between its ranks.
  const std::vector<Flow> flows = {{100, 101, 8}, {103, 104, 1}};
  const FlowSums s = sum_flows(flows, groups);
  EXPECT_EQ(s.bytes, (std::vector<int64_t>{8, 1, 0, 0}));
  EXPECT_EQ(s.sent, (std::vector<int64_t>{9, 0}));
  EXPECT_EQ(s.received, (std::vector<int64_t>{8, 1}));
}

TEST(FlowMatrix, SaysWhetherItHatches) {
  const std::vector<int64_t> ranks = {0, 1};
  const RankGroups groups(ranks);
  Svg svg(300, "a matrix");
  const std::vector<Flow> sent = {{0, 1, 2048}}, kept = {{0, 0, 8}};
  EXPECT_FALSE(draw_flow_matrix(svg, 0, 0, sent, groups).keeps);
  const FlowMatrix matrix = draw_flow_matrix(svg, 0, 200, kept, groups);
  EXPECT_TRUE(matrix.keeps);
  EXPECT_GT(matrix.bottom, 200);
  const std::string text = svg.finish(400);
  EXPECT_NE(text.find("0 to 1: 2,048 bytes"), text.npos);
  EXPECT_NE(text.find("0 keeps 8 bytes"), text.npos);
}

}  // namespace
}  // namespace dtensor::report
