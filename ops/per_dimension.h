// SPDX-License-Identifier: Apache-2.0
// The argument type of sizes, strides and the like of windows.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace dtensor {

// A number for each dimension of space, or one for all of them: 2, {2, 3}.
class PerDimension : public std::vector<int64_t> {
 public:
  PerDimension() = default;
  PerDimension(int64_t n) : vector(1, n) {}
  PerDimension(std::initializer_list<int64_t> n) : vector(n) {}
  PerDimension(std::vector<int64_t> n) : vector(std::move(n)) {}
};

}  // namespace dtensor
