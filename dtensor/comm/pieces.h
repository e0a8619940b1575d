// Where a piece of a schedule lies in local memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/device/copy.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// A piece as boxes of several arrays, each of which holds it. Ranges that
// follow each other at equal distances in all arrays are one box with one more
// loop, so that a flattened split dimension is one box. One object may serve
// many pieces, and keeps its memory.
class Boxes {
 public:
  Boxes() = default;
  Boxes(const Region& region, std::span<const HeldRegion* const> arrays,
        std::span<const Sizes> strides) {
    reset(region, arrays, strides);
  }
  // `arrays[a]` holds the region, with strides[a] (in elements); a null one
  // holds nothing else, in the region's order.
  void reset(const Region& region, std::span<const HeldRegion* const> arrays,
             std::span<const Sizes> strides);

  // Calls fn(shape) per box; offset(a) and strides(a) then say where it is.
  template <class Fn>
  void each(Fn&& fn) {
    at_run_.assign(ends_.size(), 0);
    for (;;) {
      select();
      fn(Sizes(shape_));
      size_t d = ends_.size();
      while (d > 0 && begin(d - 1) + ++at_run_[d - 1] == ends_[d - 1])
        at_run_[--d] = 0;
      if (d == 0) return;
    }
  }
  int64_t offset(size_t array) const { return offsets_[array]; }
  Sizes strides(size_t array) const {
    return Sizes(box_strides_).subspan(array * shape_.size(), shape_.size());
  }

 private:
  // `count` ranges of `length`. The first one lies at at_[arrays * run + a] in
  // array a, each further one a step behind the one before it.
  struct Run {
    int64_t count, length;
  };
  size_t begin(size_t dim) const { return dim == 0 ? 0 : ends_[dim - 1]; }
  // One more range of dimension ends_.size(), which lies at next_ in memory.
  void add(int64_t length);
  void select();

  std::vector<Run> runs_;
  std::vector<int64_t> at_, step_;
  std::vector<size_t> ends_;      // of each dimension's runs
  std::vector<int64_t> strides_;  // by array, then by dimension
  // While runs are made: the range of each array, where it starts in memory,
  // and where the next range lies.
  std::vector<size_t> range_;
  std::vector<int64_t> start_, next_;
  // The box.
  std::vector<size_t> at_run_;
  std::vector<int64_t> shape_, offsets_, box_strides_;
};

}  // namespace dtensor
