// SPDX-License-Identifier: Apache-2.0
// Sets of indices of a tensor, such as those that a rank's memory or a message
// holds: a list of ranges for each dimension. The set is the product of the
// lists.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/placement/shape.h"
#include "dtensor/placement/split.h"

namespace dtensor {

// Ranges of one dimension in local order. No range is empty or starts where the
// one before it ends, and no index occurs twice. A list ascends if each range
// lies after the one before.
using IntervalList = std::vector<Interval>;
// One list for each dimension; the region is their product. A region ascends if
// all of its lists do.
struct Region : std::vector<IntervalList> {
  using vector::vector;
  IntervalList& operator[](size_t dim) & { return vector::operator[](dim); }
  const IntervalList& operator[](size_t dim) const& {
    return vector::operator[](dim);
  }
  // A temporary gives its list by value: a reference would dangle in
  // for (const Interval& i : x.region()[0]).
  IntervalList operator[](size_t dim) && {
    return std::move(vector::operator[](dim));
  }
};

int64_t length(const IntervalList&);
int64_t volume(const Region&);
Shape local_shape(const Region&);
bool ascends(const IntervalList&);
// Whether there are no indices. (A scalar has one.)
bool empty(const Region&);

// The number of shared indices. Takes linear time if both lists ascend.
int64_t overlap(const IntervalList&, const IntervalList&);
int64_t overlap(const Region&, const Region&);

// intersect() is the part of `a` that is in `b`, and subtract() the part that
// is not, both in the order of `a`. They take linear time if `a` ascends too.
// Regions are intersected dimension by dimension. REQUIRES: b ascends.
IntervalList intersect(const IntervalList& a, const IntervalList& b);
IntervalList subtract(const IntervalList& a, const IntervalList& b);
Region intersect(const Region& a, const Region& b);

// The part of `a` that is not in `b`, as disjoint regions, at most one for each
// dimension. REQUIRES: both ascend.
std::vector<Region> subtract(const Region& a, const Region& b);

uint64_t hash_of(uint64_t h, const Region&);
// Whether `a` comes before `b` in a total order of all regions.
bool comes_first(const Region& a, const Region& b);

// A region in ascending order, with the place of each range in local memory,
// which may follow another order.
class HeldRegion {
 public:
  HeldRegion() = default;
  explicit HeldRegion(Region);
  const Region& ascending() const { return ranges_; }
  // The places of the ranges. Empty if memory follows the ascending order, so
  // that each range starts where the one before it ends.
  std::span<const int64_t> starts(size_t dim) const {
    return starts_.empty() ? std::span<const int64_t>() : starts_[dim];
  }
  // The place of an index in memory. REQUIRES: the region has the index.
  int64_t place(size_t dim, int64_t index) const;

 private:
  Region ranges_;
  std::vector<std::vector<int64_t>> starts_;
};

}  // namespace dtensor
