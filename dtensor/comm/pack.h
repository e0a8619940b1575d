// SPDX-License-Identifier: Apache-2.0
// Packs values into the text of a message between processes.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

// The text in the MessagePack format, in which a string may hold any bytes, and
// back. from_packed() throws nlohmann::json::exception. (Not inline: each file
// that compiles the reader and the writer takes a second longer.)
std::string to_packed(const nlohmann::json&);
nlohmann::json from_packed(std::string_view);

template <class... T>
std::string pack(const T&... values) {
  return to_packed(nlohmann::json::array({nlohmann::json(values)...}));
}

// Reads the first values of a text that pack() made. Throws Error if the text
// has fewer values, or values of other types.
template <class... T>
void unpack(std::string_view text, T&... values) {
  try {
    const auto all = from_packed(text);
    size_t i = 0;
    (all.at(i++).get_to(values), ...);
  } catch (const nlohmann::json::exception& e) {
    fail("communicator",
         "a message from another process cannot be read: {}; start the same "
         "build of the program in every process, or, if it is the same, look "
         "for faulty memory or a faulty network",
         e.what());
  }
}

}  // namespace dtensor
