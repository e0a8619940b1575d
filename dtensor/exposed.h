// SPDX-License-Identifier: Apache-2.0
// Measures how long communication keeps a rank from computing.
#pragma once
#include <chrono>

#include "dtensor/rank_context.h"

namespace dtensor {

// Adds the time of its scope to RankContext::exposed_ns if the rank records and
// this is its main thread. If not, the scope does not even read the clock,
// since that takes almost as long as a small collective.
class Exposed {
 public:
  explicit Exposed(RankContext& context)
      : context_(context), counts_(context.record && context.lane == 0) {
    if (counts_) start_ = std::chrono::steady_clock::now();
  }
  ~Exposed() {
    if (counts_)
      context_.exposed_ns += (std::chrono::steady_clock::now() - start_) /
                             std::chrono::nanoseconds(1);
  }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  RankContext& context_;
  const bool counts_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace dtensor
