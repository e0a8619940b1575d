// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "dtensor/nn/trainer.h"

namespace dtensor::nn {

double CosineSchedule::at(int64_t step) const {
  const int64_t warm = warmup >= 0 ? warmup : std::min<int64_t>(10, steps / 10);
  if (step < warm)
    return lr * static_cast<double>(step + 1) / static_cast<double>(warm);
  const int64_t rest = std::max<int64_t>(1, steps - warm);
  const double t = std::min(
      1.0, static_cast<double>(step - warm) / static_cast<double>(rest));
  return lr * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * t)) / 2);
}

}  // namespace dtensor::nn
