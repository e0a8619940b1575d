// SPDX-License-Identifier: Apache-2.0
// Measures how long communication keeps a rank from computing.
#pragma once
#include <chrono>

#include "dtensor/rank_context.h"

namespace dtensor {

// While the rank records, adds the scope's time to RankContext::exposed_ns.
// Does nothing on the rank's second thread. Otherwise it reads no clock, since
// that takes almost as long as a small collective.
class Exposed {
 public:
  explicit Exposed(RankContext& context)
      : context_(context), counts_(context.record && context.lane == 0) {
    if (counts_) start_ = std::chrono::steady_clock::now();
  }
  ~Exposed() { stop(); }
  // Ends the exposed time before the scope ends.
  void stop() {
    if (counts_)
      context_.exposed_ns += (std::chrono::steady_clock::now() - start_) /
                             std::chrono::nanoseconds(1);
    counts_ = false;
  }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  RankContext& context_;
  bool counts_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace dtensor
