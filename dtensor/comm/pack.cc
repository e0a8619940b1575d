// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/pack.h"

namespace dtensor {

std::string to_packed(const nlohmann::json& json) {
  std::string text;
  nlohmann::json::to_msgpack(json, text);
  return text;
}

nlohmann::json from_packed(std::string_view text) {
  return nlohmann::json::from_msgpack(text);
}

}  // namespace dtensor
