// SPDX-License-Identifier: Apache-2.0
// Groups of neighbouring ranks that share a colour and a row of a picture.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace dtensor::report {

class RankGroups {
 public:
  // Makes at most `most` groups, whose sizes differ by at most one. If there
  // are no more than `most` ranks, each has its own group. REQUIRES: `ranks`
  // ascend, are not empty, and outlive this object.
  explicit RankGroups(std::span<const int64_t> ranks, size_t most = 16);

  size_t size() const { return groups_; }
  bool shared() const { return groups_ < ranks_.size(); }
  // The group of a rank. REQUIRES: `rank` is one of the ranks.
  size_t of(int64_t rank) const;
  std::string text(size_t group) const;    // "3", or "8-15"
  std::string colour(size_t group) const;  // "#a0c4ff"

 private:
  std::span<const int64_t> ranks_;
  size_t groups_;
};

}  // namespace dtensor::report
