// SPDX-License-Identifier: Apache-2.0
// Cuts a tensor into panels. A redistribution moves one panel after the other,
// so that the memory between source and destination stays small.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/plan.h"

namespace dtensor {

// Whether a step writes new memory. A slice, and a partial-fill that changes no
// value, use the memory that is there.
bool makes_memory(const Step&);

struct Panels {
  // The panels, as ascending regions. Every index is in exactly one of them.
  // Every rank's part is cut evenly: if it is large enough, the rank has about
  // the same work in each panel.
  std::vector<Region> regions;
  // The most bytes that a rank holds of one panel's intermediate layouts.
  int64_t between_bytes = 0;
  // True if cutting more panels would not make them smaller.
  bool finest = false;
};

// Cuts about `count` panels, at least one, for the steps of one tensor.
// REQUIRES: at least one step.
Panels cut_panels(std::span<const Step> steps, int64_t count);

// Cuts each of several tensors (see Step::tensor) into about plan.chunks
// panels, or more until the memory between source and destination fits into
// block_bytes or panels cannot get smaller. Returns a list for each tensor; the
// list of a tensor that needs no memory in between is empty.
std::vector<std::vector<Region>> panels(const Plan&, int tensors,
                                        int64_t block_bytes);

}  // namespace dtensor
