// SPDX-License-Identifier: Apache-2.0
// Printing a tensor with std::cout << x and fmt::print("{}", x). Both print the
// spec alone, since the values would have to be collected from all ranks;
// DistTensor::to_string() does that.
#pragma once
#include <fmt/format.h>

#include <iosfwd>
#include <string>

#include "dtensor/dist_tensor.h"

namespace dtensor {

// "f32[2, 2](S0) on dp=2, without the values; write to_string() for them". Any
// rank may call it, alone.
std::string summary(const DistTensor&);
std::ostream& operator<<(std::ostream&, const DistTensor&);

}  // namespace dtensor

template <>
struct fmt::formatter<dtensor::DistTensor> : fmt::formatter<std::string> {
  auto format(const dtensor::DistTensor& x, fmt::format_context& to) const {
    return fmt::formatter<std::string>::format(dtensor::summary(x), to);
  }
};
