// SPDX-License-Identifier: Apache-2.0
// The measured time of training steps.
#pragma once
#include <cstdint>
#include <vector>

namespace dtensor::examples {

// The median of the times of the steps, without the first two, which warm up.
// If there are only one or two steps, all count. REQUIRES: there is a step.
double typical(std::vector<double> step_seconds);
// Tokens per second in steps of `tokens` tokens, by the typical() step time.
double tokens_per_second(std::vector<double> step_seconds, int64_t tokens);

}  // namespace dtensor::examples
