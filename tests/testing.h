// SPDX-License-Identifier: Apache-2.0
// What tests of every folder share.
#pragma once
#include <string>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor::testing {

// The text of the Error that fn() throws, "no error" when it throws none.
template <class Fn>
std::string error_of(Fn&& fn) {
  try {
    std::forward<Fn>(fn)();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace dtensor::testing
