// The one exception type of the library.
//
// A message is a sentence: "[op] what is wrong", with every value, and what to
// write instead. It is thrown before anything is sent, from facts that all
// ranks share, so that all ranks throw the same one.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace dtensor {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error("[where] ...") with fmt's formatting of the rest.
template <class... Args>
[[noreturn]] void fail(std::string_view where, fmt::format_string<Args...> text,
                       Args&&... args) {
  throw Error(fmt::format("[{}] {}", where,
                          fmt::format(text, std::forward<Args>(args)...)));
}

// fail() unless the condition holds. A macro, so that the values of the message
// are only put together when there is a message.
#define DT_CHECK(condition, ...)    \
  do {                              \
    if (!(condition)) [[unlikely]]  \
      ::dtensor::fail(__VA_ARGS__); \
  } while (false)

}  // namespace dtensor
