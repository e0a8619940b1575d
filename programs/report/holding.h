// SPDX-License-Identifier: Apache-2.0
// Finds the ranks that hold each part of a tensor, for a picture of two of its
// dimensions at the first index of the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor::report {

// The dimensions of a tensor that a picture draws down and across; -1: none.
struct View {
  int rows = -1, columns = -1;
};

// Chooses two dimensions. Prefers those that are split in `from` or `to`, among
// these those that change, and then the longest. If the tensor has fewer than
// two dimensions, the missing ones are -1. REQUIRES: both specs have the same
// shape.
View choose_view(const Spec* from, const Spec* to);

// If the ranks' parts cut a dimension into more boxes than this, it is drawn as
// this many boxes of about equal size.
inline constexpr size_t kMostCuts = 64;

struct Holding {
  std::vector<int64_t> rows, columns;         // starts of boxes, then the end
  std::vector<std::vector<int64_t>> holders;  // mesh ranks, by row and column
  // Whether a dimension has kMostCuts boxes because the parts cut it into more.
  // Then `holders` has, for each box, only the ranks that hold its first index.
  bool sampled = false;
  const std::vector<int64_t>& at(size_t r, size_t c) const {
    return holders[r * (columns.size() - 1) + c];
  }
};

// Returns the boxes of a picture and their holders; no boxes if the tensor has
// no elements.
Holding holding(const Spec*, const View&);

// Ranks as text, sorted: "0-3 8".
std::string listed(std::vector<int64_t> ranks);

// The ranks of the run that hold a box, as text: "0 4" if they hold the same
// values, "0 + 4" if the box is the sum of their values, "max(0, 4)" for
// another reduction, "combine(0, 4)" for several. REQUIRES: a rank or more.
std::string holders_text(const Spec*, const std::vector<int64_t>& mesh_ranks);

}  // namespace dtensor::report
