// How long communication keeps a rank from computing.
#pragma once
#include <chrono>

#include "dtensor/runtime/rank_context.h"

namespace dtensor {

// The scope's time counts as exposed (RankContext::exposed_ns), unless it is
// the rank's other thread that communicates.
class Exposed {
 public:
  explicit Exposed(RankContext& context)
      : context_(context), start_(std::chrono::steady_clock::now()) {}
  ~Exposed() {
    if (context_.lane == 0)
      context_.exposed_ns += (std::chrono::steady_clock::now() - start_) /
                             std::chrono::nanoseconds(1);
  }
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  RankContext& context_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace dtensor
