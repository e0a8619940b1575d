// Who holds what of a tensor, as a picture needs it: of two dimensions, at the
// first index of the others.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor::report {

// The dimensions down and across; -1: none.
struct View {
  int rows = -1, columns = -1;
};

// Two that are cut or that move, the longest first; -1 where the tensor has
// fewer. REQUIRES: both specs are of one shape.
View choose_view(const Spec* from, const Spec* to);

// Boxes of a dimension beyond this many are sampled.
inline constexpr size_t kMostCuts = 64;

struct Holding {
  std::vector<int64_t> rows, columns;         // where the boxes begin, and n
  std::vector<std::vector<int64_t>> holders;  // mesh ranks, by row and column
  bool sampled = false;  // a box shows who holds its first index
  const std::vector<int64_t>& at(size_t r, size_t c) const {
    return holders[r * (columns.size() - 1) + c];
  }
};

// Without elements there are no boxes.
Holding holding(const Spec*, const View&);

// "0-3 8".
std::string listed(std::vector<int64_t> ranks);

// Ranks of the run: "0 4" hold the same, "0 + 4" what is still to be summed,
// "max(0, 4)" reduced otherwise. REQUIRES: mesh_ranks is not empty.
std::string holders_text(const Spec*, const std::vector<int64_t>& mesh_ranks);

}  // namespace dtensor::report
