// Sets of indices of a tensor, as a rank's memory and a message hold them: per
// dimension a list of ranges, and together the product of the lists.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/shape.h"
#include "dtensor/placement/split.h"

namespace dtensor {

// Ranges of one dimension in local order, no two adjacent, none empty, no index
// twice. A list is said to ascend when each range lies behind the one before.
using IntervalList = std::vector<Interval>;
// One list per dimension: the indices that a rank holds are their product. A
// region is said to ascend when all of its lists do.
using Region = std::vector<IntervalList>;

int64_t length(const IntervalList&);
int64_t volume(const Region&);
Shape local_shape(const Region&);
bool ascends(const IntervalList&);
// Is there no index? (A scalar has one.)
bool empty(const Region&);

// How many indices two lists share; linear when both ascend.
int64_t overlap(const IntervalList&, const IntervalList&);
int64_t overlap(const Region&, const Region&);

// What of `a` is in `b`, or is not, in the order of `a`. REQUIRES: b ascends.
// Linear when a does, too. Of regions, each dimension by itself.
IntervalList intersect(const IntervalList& a, const IntervalList& b);
IntervalList subtract(const IntervalList& a, const IntervalList& b);
Region intersect(const Region& a, const Region& b);

// Disjoint regions that are together what of `a` is not in `b`; at most one per
// dimension. REQUIRES: both ascend.
std::vector<Region> subtract(const Region& a, const Region& b);

uint64_t hash_of(uint64_t h, const Region&);
// Some order of regions.
bool comes_first(const Region& a, const Region& b);

// A region in ascending order, and, per range, where it starts in the list that
// the local memory follows.
class HeldRegion {
 public:
  HeldRegion() = default;
  explicit HeldRegion(Region);
  const Region& ascending() const { return ranges_; }
  // Empty when the memory follows the ascending list: then each range starts
  // where the one before it ends.
  std::span<const int64_t> starts(size_t dim) const {
    return starts_.empty() ? std::span<const int64_t>() : starts_[dim];
  }
  // Where the memory has an index of the dimension. REQUIRES: it has it.
  int64_t place(size_t dim, int64_t index) const;

 private:
  Region ranges_;
  std::vector<std::vector<int64_t>> starts_;
};

}  // namespace dtensor
