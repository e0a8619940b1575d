// SPDX-License-Identifier: Apache-2.0
// Cuts the tensors of a checkpoint into boxes, assigns each box to the rank
// that writes it, and finds boxes in a rank's part. Not for users.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/region.h"
#include "dtensor/placement/spec.h"
#include "dtensor/tensor.h"

namespace dtensor::checkpoint {

// The indices [lo, lo + size) in each dimension.
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

// Boxes of more bytes are cut, since each box has one checksum and is read into
// one buffer. (Very large checkpoints have larger boxes, to limit their
// number.)
inline constexpr int64_t kBoxBytes = int64_t{4} << 20;
// If the ranks that hold a box would each write fewer bytes of it than this,
// one of them writes the whole box.
inline constexpr int64_t kShareBytes = int64_t{64} << 10;

// Returns the boxes that each rank of the run writes, in the order of the
// rank's file. Every element of every tensor is in exactly one box, of a rank
// that holds the element. Boxes that several ranks hold are divided among these
// ranks, so that all ranks write about the same amount. If a box is small, or
// has no dimension with an index for each rank, the rank with the fewest bytes
// so far gets it whole. REQUIRES: no spec is partial, and ranks with different
// coordinates on an axis that splits a tensor share none of its elements.
std::vector<std::vector<OwnedBox>> boxes_by_rank(std::span<const Spec* const>,
                                                 int64_t world);

// A piece that a rank's part and a box share: where it begins in the part and
// in the box, and its size.
struct Window {
  Shape in_part, in_box, size;
};
// Returns all pieces that the box shares with a part that holds `held`, in
// row-major order.
std::vector<Window> windows(const Region& held, const Box&);
// Returns a view of these indices of a tensor.
Tensor view_of(Tensor, const Shape& lo, const Shape& size);

}  // namespace dtensor::checkpoint
