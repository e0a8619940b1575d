// SPDX-License-Identifier: Apache-2.0
// Formats JSON for result files and for errors.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dtensor {

// Writes each member of an object, and each element of an array, on its own
// line, indented by 2; an array of primitive values stays on one line. Replaces
// invalid UTF-8. Ends in a newline.
std::string json_text(const nlohmann::ordered_json&);

// A text, or a value as JSON in ASCII, as errors show it: if it is longer than
// 80 bytes, only the first 80, and then "...".
std::string shown(std::string text);
std::string shown(const nlohmann::ordered_json&);

}  // namespace dtensor
