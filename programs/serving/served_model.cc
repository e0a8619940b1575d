// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/served_model.h"

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

std::string ServedModel::rendered(
    const nlohmann::ordered_json& messages,
    const nlohmann::ordered_json* variables) const {
  if (!chat) throw Error(why_no_chat);
  nn::ChatTemplate::Options options;
  options.add_generation_prompt = true;
  options.variables = variables;
  return chat->apply(messages, options);
}

std::vector<int64_t> ServedModel::prompt(const std::string& rendered) const {
  return tokenizer.encode(rendered, {.add_special = false});
}

size_t ServedModel::most_bytes(int64_t tokens) const {
  return static_cast<size_t>(tokens) * tokenizer.longest_token() * 4;
}

}  // namespace dtensor::examples
