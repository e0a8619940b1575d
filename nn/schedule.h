// The learning-rate schedule.
#pragma once
#include <cstdint>

namespace dtensor::nn {

// Linear warm-up, then half a cosine down to floor * lr.
struct CosineSchedule {
  double lr = 1e-3;
  int64_t steps = 1;
  int64_t warmup = -1;  // steps; -1: min(10, steps / 10)
  double floor = 0.1;

  // The rate at step 0, 1, ..., steps - 1: lr (step + 1) / warmup while step <
  // warmup, then lr (floor + (1 - floor) (1 + cos(pi t)) / 2) with t = (step -
  // warmup) / (steps - warmup).
  double at(int64_t step) const;
};

}  // namespace dtensor::nn
