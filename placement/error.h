// SPDX-License-Identifier: Apache-2.0
// The exception type of the library. A few others, such as PeerFailed, derive
// from it.
//
// A message is one sentence: "[op] what is wrong", with every value, and what
// to write instead. A call with wrong arguments throws before anything is sent.
// It checks only facts that all ranks share, so all ranks throw the same Error.
// (The values in a tensor are checked later: see data_check.h.)
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace dtensor {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "1 axis", "2 axes", for the text of an error.
inline std::string quantity(int64_t n, std::string_view one,
                            std::string_view several) {
  return fmt::format("{} {}", n, n == 1 ? one : several);
}

// Throws Error("[where] ..."), where fmt formats `text` with `args`.
template <class... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> text,
                       Args&&... args) {
  throw Error(fmt::format("[{}] {}", where,
                          fmt::format(text, std::forward<Args>(args)...)));
}

// Calls fail() unless the condition holds. It is a macro so that the values of
// the message are only computed when the condition fails.
#define DT_CHECK(condition, ...)    \
  do {                              \
    if (!(condition)) [[unlikely]]  \
      ::dtensor::fail(__VA_ARGS__); \
  } while (false)

}  // namespace dtensor
