// SPDX-License-Identifier: Apache-2.0
#include "examples/serving/served_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "dtensor/placement/error.h"

namespace dtensor::examples {

ServedModel ServedModel::read(const std::string& dir, std::string name) {
  if (name.empty()) {
    const auto path = std::filesystem::absolute(dir).lexically_normal();
    name =
        (path.has_filename() ? path : path.parent_path()).filename().string();
  }
  ServedModel m{.name = std::move(name),
                .tokenizer = nn::Tokenizer::from_pretrained(dir),
                .defaults = nn::read_generation_config(dir)};
  try {
    m.chat = nn::ChatTemplate::from_pretrained(dir);
  } catch (const Error& e) {
    m.why_no_chat = e.what();
  }
  return m;
}

std::vector<int64_t> ServedModel::prompt(
    const nlohmann::ordered_json& messages,
    const nlohmann::ordered_json* variables) const {
  if (!chat) throw Error(why_no_chat);
  nn::ChatTemplate::Options options;
  options.add_generation_prompt = true;
  options.variables = variables;
  return tokenizer.encode(chat->apply(messages, options),
                          {.add_special = false});
}

}  // namespace dtensor::examples
