// The location of a schedule's pieces in local memory, and work on them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/device/device.h"
#include "dtensor/placement/region.h"

namespace dtensor {

// Describes a piece as boxes in several arrays that each hold it. Ranges at
// equal distances in all arrays become one box with an additional loop, so that
// a split dimension that was flattened is one box. An object can be reused for
// many pieces and keeps its memory.
class Boxes {
 public:
  Boxes() = default;
  Boxes(const Region& region, std::span<const HeldRegion* const> arrays,
        std::span<const Sizes> strides) {
    reset(region, arrays, strides);
  }
  // arrays[a] holds the region, with strides strides[a] in elements. A null
  // entry stands for an array that holds exactly the region, in the region's
  // order.
  void reset(const Region& region, std::span<const HeldRegion* const> arrays,
             std::span<const Sizes> strides);

  // Calls fn(shape) for every box; during the call, offset(a) and strides(a),
  // in elements, say where the box lies in array a.
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
  // `count` ranges of `length` elements. In array a the first one lies at
  // at_[arrays * run + a], and each further one lies one step after the
  // previous one.
  struct Run {
    int64_t count, length;
  };
  size_t begin(size_t dim) const { return dim == 0 ? 0 : ends_[dim - 1]; }
  // Adds a range of dimension ends_.size(), which lies at next_ in memory.
  void add(int64_t length);
  void select();

  std::vector<Run> runs_;
  std::vector<int64_t> at_, step_;
  std::vector<size_t> ends_;      // where the runs of each dimension end
  std::vector<int64_t> strides_;  // by array, then by dimension
  // While runs are built: the current range of each array, where that range
  // starts in memory, and where the next range of the piece lies.
  std::vector<size_t> range_;
  std::vector<int64_t> start_, next_;
  // The current box.
  std::vector<size_t> at_run_;
  std::vector<int64_t> shape_, offsets_, box_strides_;
};

// The device and stream of some work.
struct Place {
  Device& device;
  Stream stream;
};

// An array in memory and the indices that it holds, in order, with one stride
// per dimension. If `held` is null, it holds exactly the piece at hand.
struct HeldArray {
  const void* data;
  const HeldRegion* held;
  Sizes strides;
};

inline char* advance(const void* data, int64_t elements, int64_t item) {
  return static_cast<char*>(const_cast<void*>(data)) + elements * item;
}

// Copies and reduces pieces. Keeps its scratch memory from call to call. The
// functions return the bytes that were read of one source.
class PieceWork {
 public:
  int64_t copy(const Place&, int64_t item, const Region& piece,
               const HeldArray& to, const HeldArray& from);
  // The sources of one piece, which reduce() takes in this order.
  std::vector<HeldArray>& sources() { return sources_; }
  int64_t reduce(const Place&, ReduceOp, DType, const Region& piece,
                 const HeldArray& to, int64_t terms);
  // The address of the piece if it lies packed in the array; else null.
  void* whole(int64_t item, const Region& piece, const HeldArray&);

 private:
  void reset(const Region& piece, const HeldArray& first,
             std::span<const HeldArray> others);

  Boxes boxes_;
  std::vector<HeldArray> sources_;
  std::vector<const HeldRegion*> arrays_;
  std::vector<Sizes> strides_;
  std::vector<Operand> operands_;
};

}  // namespace dtensor
