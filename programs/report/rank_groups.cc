// SPDX-License-Identifier: Apache-2.0
#include "programs/report/rank_groups.h"

#include <algorithm>
#include <vector>

#include "programs/report/svg.h"

namespace dtensor::report {

RankGroups::RankGroups(std::span<const int64_t> ranks, size_t most)
    : ranks_(ranks), groups_(std::min(ranks.size(), most)) {}

size_t RankGroups::of(int64_t rank) const {
  const auto at = static_cast<size_t>(
      std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  return at * groups_ / ranks_.size();
}

std::string RankGroups::text(size_t group) const {
  std::vector<int64_t> ranks;
  for (int64_t r : ranks_)
    if (of(r) == group) ranks.push_back(r);
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  return std::to_string(ranks.front()) + "-" + std::to_string(ranks.back());
}

std::string RankGroups::colour(size_t group) const {
  return report::colour(static_cast<int64_t>(group),
                        static_cast<int64_t>(groups_));
}

}  // namespace dtensor::report
