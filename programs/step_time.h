// SPDX-License-Identifier: Apache-2.0
// The measured time of training steps.
#pragma once
#include <cstdint>
#include <vector>

namespace dtensor::examples {

// The median time of the steps, without the first two, which warm up. REQUIRES:
// there is a step.
double typical(std::vector<double> step_seconds);
// Tokens per second of steps with `tokens` tokens, by their typical() time.
double tokens_per_second(std::vector<double> step_seconds, int64_t tokens);

}  // namespace dtensor::examples
