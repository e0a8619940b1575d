// SPDX-License-Identifier: Apache-2.0
#include "programs/step_time.h"

#include <algorithm>
#include <utility>

namespace dtensor::examples {

double typical(std::vector<double> s) {
  if (s.size() > 2) s.erase(s.begin(), s.begin() + 2);
  std::sort(s.begin(), s.end());
  const size_t half = s.size() / 2;
  return s.size() % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
}

double tokens_per_second(std::vector<double> step_seconds, int64_t tokens) {
  return static_cast<double>(tokens) / typical(std::move(step_seconds));
}

}  // namespace dtensor::examples
