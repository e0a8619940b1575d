// SPDX-License-Identifier: Apache-2.0
#include "dtensor/lineage.h"

#include <fmt/format.h>

namespace dtensor {

std::string Lineage::to_string() const {
  if (op.empty()) return "";
  return fmt::format("{}, operator {} of {}", op, ordinal,
                     path.empty() ? "the program" : path);
}

}  // namespace dtensor
