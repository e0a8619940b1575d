// SPDX-License-Identifier: Apache-2.0
// Finds where the pieces of a schedule lie in local memory.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// An array in memory and the indices that it holds, in order, with one stride
// (in elements) per dimension. If `held` is null, the array holds exactly the
// region that is given to Boxes::reset(), in the region's order.
struct HeldArray {
  const void* data;
  const HeldRegion* held;
  Sizes strides;
};

inline char* advance(const void* data, int64_t elements, int64_t item) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * item;
}

// Divides a piece into boxes, for several arrays that each hold the piece: in
// each array, a box is a strided block. Ranges of one length that lie at equal
// distances in each array become one box with one more dimension. Therefore one
// box is enough if a dimension was flattened from several, one of which is
// split. An object can be reused for many pieces and keeps its memory.
class Boxes {
 public:
  Boxes() = default;
  Boxes(const Region& region, std::span<const HeldArray> arrays) {
    reset(region, arrays);
  }
  void reset(const Region& region, std::span<const HeldArray> arrays);

  // Calls fn(shape) for every box; during the call, address(a, item) and
  // strides(a) say where the box lies in array a, of elements of `item` bytes.
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
  char* address(size_t array, int64_t item) const {
    return advance(data_[array], offsets_[array], item);
  }
  Sizes strides(size_t array) const {
    return Sizes(box_strides_).subspan(array * shape_.size(), shape_.size());
  }

 private:
  // `count` ranges of `length` indices of one dimension. With A arrays, the
  // first range of run r begins at index at_[A * r + a] of array a, and each
  // further range begins step_[A * r + a] after the one before.
  struct Run {
    int64_t count, length;
  };
  size_t begin(size_t dim) const { return dim == 0 ? 0 : ends_[dim - 1]; }
  // Adds a range to dimension ends_.size(). next_ says where it lies in each
  // array.
  void add(int64_t length);
  void select();

  std::vector<const void*> data_;  // one per array
  std::vector<Run> runs_;
  std::vector<int64_t> at_, step_;
  std::vector<size_t> ends_;      // where the runs of each dimension end
  std::vector<int64_t> strides_;  // array after array, one per dimension
  // While the runs of a dimension are built, by array: the number of the
  // array's current range, where that range begins, and where the next range of
  // the piece begins, both counted in indices that the array holds.
  std::vector<size_t> range_;
  std::vector<int64_t> start_, next_;
  // The current box.
  std::vector<size_t> at_run_;
  std::vector<int64_t> shape_, offsets_, box_strides_;
};

}  // namespace dtensor
