// SPDX-License-Identifier: Apache-2.0
// The requests that rank 0 sends to all ranks before a step.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/engine.h"

namespace dtensor::examples {

struct Work {
  // Requests with the numbers that rank 0 gave them. Callbacks are not sent.
  std::vector<std::pair<int64_t, nn::TextRequest>> added = {};
  std::vector<int64_t> cancelled = {};
  bool end = false;  // whether this is the last work
  bool empty() const { return added.empty() && cancelled.empty() && !end; }
};

// Returns "" for no work. Floating-point numbers arrive unchanged.
std::string to_bytes(const Work&);
// Throws Error for bytes that do not have the form that to_bytes() writes.
Work work_from(const std::string& bytes);

}  // namespace dtensor::examples
