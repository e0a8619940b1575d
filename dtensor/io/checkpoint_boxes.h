// Which rank writes which box of which tensor of a checkpoint, and where a box
// lies in a rank's part. Pure functions of specs. Not for users.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/region.h"
#include "dtensor/placement/spec.h"

namespace dtensor::checkpoint {

// Indices [lo, lo + size) of each dimension.
struct Box {
  Shape lo, size;
};
std::string to_string(const Box&);  // "[0:2, 4:8]"
Region region_of(const Box&);

struct OwnedBox {
  size_t tensor;
  Box box;
  int64_t bytes;
};

// Boxes of more bytes are cut: a checksum, and a buffer, is of one box.
inline constexpr int64_t kBoxBytes = int64_t{4} << 20;
// Parts of fewer bytes per holder are written by one of them.
inline constexpr int64_t kShareBytes = int64_t{64} << 10;

// By rank of the run, in the order in which they lie in its file. Every element
// of every tensor is in one box of one rank that holds it; what several hold is
// cut among them, and small parts go to whoever has least so far, so that all
// ranks write about the same. REQUIRES: no spec is partial.
std::vector<std::vector<OwnedBox>> boxes_by_rank(std::span<const Spec* const>,
                                                 int64_t world);

// Where a part that holds `held` has what it shares with the box: pairs of
// windows of the same size, of the part and of the box.
struct Window {
  Shape in_part, in_box, size;
};
std::vector<Window> windows(const Region& held, const Box&);

}  // namespace dtensor::checkpoint
