// SPDX-License-Identifier: Apache-2.0
// The requests that the main rank hands to all ranks before a step.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/engine.h"

namespace dtensor::examples {

struct Work {
  // By the number that the main rank gave them; their callbacks are not sent.
  std::vector<std::pair<int64_t, nn::TextRequest>> added = {};
  std::vector<int64_t> cancelled = {};
  bool end = false;  // nothing follows
  bool empty() const { return added.empty() && cancelled.empty() && !end; }
};

// "" for no work. Numbers arrive with all their bits.
std::string to_bytes(const Work&);
// Throws Error for bytes that to_bytes() did not write.
Work work_from(const std::string& bytes);

}  // namespace dtensor::examples
