// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "dtensor/nn/trainer.h"
#include "dtensor/placement/error.h"

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

Rate StepLR(double lr, int64_t step_size, double gamma) {
  DT_CHECK(step_size > 0, "rate", "step_size is {}; write at least 1",
           step_size);
  return [=](int64_t step) {
    return lr * std::pow(gamma, static_cast<double>(step / step_size));
  };
}

Rate CosineAnnealingLR(double lr, int64_t T_max, double eta_min) {
  DT_CHECK(T_max > 0, "rate", "T_max is {}; write at least 1", T_max);
  return [=](int64_t step) {
    const double t = static_cast<double>(step) / static_cast<double>(T_max);
    return eta_min + (lr - eta_min) * (1 + std::cos(std::numbers::pi * t)) / 2;
  };
}

}  // namespace dtensor::nn
