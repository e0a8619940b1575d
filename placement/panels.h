// Parts of a tensor that its redistribution is carried out on, one after the
// other, so that what lies between source and destination stays small.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/plan.h"

namespace dtensor {

// What a step leaves of the tensor's memory: a step that only keeps a part of
// what is there, or calls it by another name, leaves it as it is.
bool makes_memory(const Step&);

struct Panels {
  // Together all indices, each once; ascending. Every rank's parts are cut
  // evenly, so that the ranks share the work on each.
  std::vector<Region> regions;
  // The most that one rank holds of one panel between source and destination.
  int64_t between_bytes = 0;
  // No number of panels above this one makes them smaller.
  bool finest = false;
};

// About `count` panels, at least one, for the steps of one tensor.
// REQUIRES: at least one step.
Panels cut_panels(std::span<const Step> steps, int64_t count);

// Panels for several tensors (by Step::tensor), about plan.chunks or more, of
// which what lies between fits into block_bytes where any panels do. One list
// per tensor; some may be shorter than others, and that of a tensor of which
// nothing lies between is empty.
std::vector<std::vector<Region>> panels(const Plan&, int tensors,
                                        int64_t block_bytes);

}  // namespace dtensor
