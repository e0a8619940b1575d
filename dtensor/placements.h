// SPDX-License-Identifier: Apache-2.0
// Layouts as users write them.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor {

// How a tensor is laid out along one mesh axis.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial, kZigzag, kOwned };
  Kind kind = Kind::kReplicate;
  int dim = 0;
  int64_t granule = 1;
  ReduceOp op = ReduceOp::kSum;
  int64_t owner = 0;
};
inline Placement Replicate() { return {}; }
// Splits dimension `dim`; a negative `dim` counts from the end. Blocks of
// `granule` consecutive indices are not divided.
inline Placement Shard(int dim, int64_t granule = 1) {
  return {Placement::Kind::kShard, dim, granule, ReduceOp::kSum};
}
// Splits dimension `dim` in 2p chunks for p ranks, of which rank i has chunks i
// and 2p - 1 - i. This balances the work of causal attention. No other axis may
// split the dimension.
inline Placement ZigZag(int dim) {
  return {Placement::Kind::kZigzag, dim, 1, ReduceOp::kSum};
}
// The rank at this coordinate of the axis has all of dimension `dim`, and the
// others nothing: a tensor that is whole on one rank. No other axis may split
// the dimension.
inline Placement Owned(int64_t rank, int dim = 0) {
  return {Placement::Kind::kOwned, dim, 1, ReduceOp::kSum, rank};
}
inline Placement PartialOf(ReduceOp op = ReduceOp::kSum) {
  return {Placement::Kind::kPartial, 0, 1, op};
}

// A layout as users write it: a list {{"dp", Shard(0)}, {"tp", Shard(1)}}, the
// text "S0,R", or a Layout. Mesh axes that a list does not name replicate, so
// {} replicates on all axes. Several axes on one dimension split it in the
// order of the list.
class Placements {
 public:
  Placements() = default;
  Placements(
      std::initializer_list<std::pair<std::string_view, Placement>> list);
  Placements(std::vector<std::pair<std::string, Placement>> list)
      : list_(std::move(list)) {}
  Placements(std::string_view text) : text_(text) {}
  Placements(const char* text) : text_(text) {}
  Placements(Layout layout)
      : layout_(std::make_shared<const Layout>(std::move(layout))) {}
  // Returns the layout of a tensor with this mesh and shape. Throws Error if an
  // axis or a dimension does not exist. (Does not check a given Layout.)
  Layout resolve(const Mesh&, const Shape&) const;
  // Returns the given spec with this layout in place of its own. Caches the
  // result for a text, so that the text is seldom parsed again.
  const Spec* applied_to(const Spec*) const;

 private:
  std::vector<std::pair<std::string, Placement>> list_;
  std::string text_;
  std::shared_ptr<const Layout> layout_;
};

}  // namespace dtensor
