// SPDX-License-Identifier: Apache-2.0
// The ranks that hold each part of a tensor, for a picture of two of its
// dimensions at the first index of the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor::report {

// The dimensions that are drawn down and across; -1: none.
struct View {
  int rows = -1, columns = -1;
};

// Chooses two dimensions: first those that are split, then those that change,
// then the longest; -1 if the tensor has fewer. REQUIRES: both specs have the
// same shape.
View choose_view(const Spec* from, const Spec* to);

// A dimension with more boxes than this is sampled.
inline constexpr size_t kMostCuts = 64;

struct Holding {
  std::vector<int64_t> rows, columns;         // the boxes' starts, and the end
  std::vector<std::vector<int64_t>> holders;  // mesh ranks, by row and column
  bool sampled = false;  // whether a box shows the holders of its first index
  const std::vector<int64_t>& at(size_t r, size_t c) const {
    return holders[r * (columns.size() - 1) + c];
  }
};

// There are no boxes if the tensor has no elements.
Holding holding(const Spec*, const View&);

// Ranks as text: "0-3 8".
std::string listed(std::vector<int64_t> ranks);

// The ranks of the run that hold a box: "0 4" if they hold the same, "0 + 4" if
// their values are still to be summed, "max(0, 4)" for another reduction.
// REQUIRES: mesh_ranks is not empty.
std::string holders_text(const Spec*, const std::vector<int64_t>& mesh_ranks);

}  // namespace dtensor::report
