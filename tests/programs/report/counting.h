// SPDX-License-Identifier: Apache-2.0
// Counts texts in pictures, for tests.
#pragma once
#include <cstddef>
#include <string>

namespace dtensor::report {

// The number of times that `what` occurs in the text.
inline size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos;
       at = text.find(what, at + 1))
    ++n;
  return n;
}

}  // namespace dtensor::report
