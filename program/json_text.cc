// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

std::string on_one_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void append(std::string& text, const Json& json, size_t indent) {
  const bool flat = json.is_array() &&
                    std::all_of(json.begin(), json.end(),
                                [](const Json& x) { return x.is_primitive(); });
  if (flat || json.is_primitive() || json.empty()) {
    text += on_one_line(json);
    return;
  }
  const bool object = json.is_object();
  const std::string line = "\n" + std::string(indent, ' ');
  text += object ? '{' : '[';
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    text += (first ? "" : ",") + line + "  ";
    if (object) text += on_one_line(key) + ": ";
    append(text, value, indent + 2);
    first = false;
  }
  text += line;
  text += object ? '}' : ']';
}

}  // namespace

std::string json_text(const Json& json) {
  std::string text;
  append(text, json, 0);
  return text + '\n';
}

std::string shown(std::string text) {
  constexpr size_t kMost = 80;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string shown(const Json& value) {
  return shown(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace dtensor
