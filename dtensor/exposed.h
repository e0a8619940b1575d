// How long communication keeps a rank from computing.
#pragma once
#include <chrono>

#include "dtensor/rank_context.h"

namespace dtensor {

// While the rank records, the scope's time counts as exposed
// (RankContext::exposed_ns), unless it is the rank's other thread that
// communicates. Else no clock is read: a small collective takes little longer
// than that.
class Exposed {
 public:
  explicit Exposed(RankContext& context)
      : context_(context), counts_(context.record && context.lane == 0) {
    if (counts_) start_ = std::chrono::steady_clock::now();
  }
  ~Exposed() { stop(); }
  // What the scope does from now on is computing.
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
