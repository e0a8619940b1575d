// SPDX-License-Identifier: Apache-2.0
// Environment variables and the numbers in them.
#pragma once
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace dtensor {

// The variable's value; nullopt if it is not set or empty.
inline std::optional<std::string> variable(const char* name) {
  const char* text = std::getenv(name);
  if (!text || !*text) return {};
  return text;
}

// Returns the number if the whole text is a number from `least` to `most`, else
// nullopt.
template <class T>
std::optional<T> number_in(std::string_view text, T least,
                           T most = std::numeric_limits<T>::max()) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || !(value >= least && value <= most))
    return {};
  return value;
}

}  // namespace dtensor
