// Which member has what of a region, and where it lies in local memory.
//
// The plan of an exchange or a reduction is made from global metadata alone,
// before anything is sent.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/device/copy.h"
#include "placement/layout.h"

namespace dtensor {

// A region whose lists ascend, and, per range, where it starts in the list that
// the local memory follows.
class HeldRegion {
 public:
  explicit HeldRegion(const Region&);
  const Region& ascending() const { return ranges_; }
  const std::vector<int64_t>& starts(size_t dim) const { return starts_[dim]; }

 private:
  Region ranges_;
  std::vector<std::vector<int64_t>> starts_;
};

// A part of a destination that lies in the same members' sources throughout.
struct Piece {
  Region region;             // ascending
  std::vector<int> members;  // ascending
};

// Cuts `dst` so that each index comes from one member, from `self` where it has
// it, else from the next one (cyclically). Throws Error, headed by `where`,
// when nobody has some index.
std::vector<Piece> cut_exchange(const HeldRegion& dst,
                                std::span<const HeldRegion> sources, int self,
                                std::string_view where);

// Cuts `dst` by who has what; a piece that nobody has has no members.
std::vector<Piece> cut_reduction(const HeldRegion& dst,
                                 std::span<const HeldRegion> sources);

// A piece as boxes of several arrays, each of which holds it. Ranges that
// follow each other at equal distances in all arrays are one box with one more
// loop, so that a flattened split dimension is one box.
class Boxes {
 public:
  // `arrays[a]` holds the region, with strides[a] (in elements).
  Boxes(const Region& region, std::span<const HeldRegion* const> arrays,
        std::span<const Sizes> strides);

  // Calls fn(shape) per box; offset(a) and strides(a) then say where it is.
  template <class Fn>
  void each(Fn&& fn) {
    std::vector<size_t> at(runs_.size(), 0);
    for (;;) {
      select(at);
      fn(Sizes(shape_));
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == runs_[d - 1].size()) at[--d] = 0;
      if (d == 0) return;
    }
  }
  int64_t offset(size_t array) const { return offsets_[array]; }
  Sizes strides(size_t array) const {
    return Sizes(box_strides_).subspan(array * shape_.size(), shape_.size());
  }

 private:
  // `count` ranges of `length`, the first one at at[a] in array a, each further
  // one step[a] behind.
  struct Run {
    int64_t count, length;
    std::vector<int64_t> at, step;
  };
  void add(std::vector<Run>& runs, int64_t length,
           const std::vector<int64_t>& at) const;
  void select(const std::vector<size_t>& at);

  std::vector<std::vector<Run>> runs_;  // by dimension
  std::vector<std::vector<int64_t>> strides_;
  std::vector<int64_t> shape_, offsets_, box_strides_;
};

}  // namespace dtensor
