// SPDX-License-Identifier: Apache-2.0
// Division by a number that the host knows, without a division.
#pragma once
#include <cstdint>

#include "dtensor/device/values.h"

namespace dtensor::portable {

// Division of numbers below 2^31 by a number that the host knows, 1 <= d <
// 2^31, as a multiplication and a shift (Granlund and Montgomery, "Division by
// invariant integers using multiplication", PLDI 1994).
class Divisor {
 public:
  Divisor() = default;  // not set
  explicit Divisor(uint32_t d) {
    shift_ = 0;
    while (uint64_t{1} << shift_ < d) ++shift_;
    const uint64_t rest = (uint64_t{1} << shift_) - d;
    factor_ = static_cast<uint32_t>((rest << 32) / d + 1);
  }
  DT_HD uint32_t quotient(uint32_t n) const {
    const uint64_t product = uint64_t{n} * factor_;
    return (static_cast<uint32_t>(product >> 32) + n) >> shift_;
  }

 private:
  uint32_t factor_, shift_;
};

}  // namespace dtensor::portable
