// SPDX-License-Identifier: Apache-2.0
// Helpers that tests of every folder use.
#pragma once
#include <string>
#include <utility>

#include "dtensor/placement/error.h"

namespace dtensor::testing {

// The text of the Error that fn() throws; "no error" if it throws none.
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
