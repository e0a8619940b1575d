// SPDX-License-Identifier: Apache-2.0
// The names of checkpoint folders. Not for users.
#pragma once
#include <cstdint>
#include <string>

namespace dtensor::checkpoint {

inline constexpr const char* kUnfinished = ".tmp";
// Returns DIR/step-00000100 for step 100.
std::string folder(const std::string& dir, int64_t step);

}  // namespace dtensor::checkpoint
