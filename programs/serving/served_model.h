// SPDX-License-Identifier: Apache-2.0
// A checkpoint with what its clients need of it: text to tokens and back.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/nn/pretrained_config.h"
#include "dtensor/nn/text/chat_template.h"
#include "dtensor/nn/text/tokenizer.h"

namespace dtensor::examples {

struct ServedModel {
  // Reads the files of a folder. Its name is the folder's if `name` is empty.
  static ServedModel read(const std::string& dir, std::string name = "");

  // The text that asks for the answer to a list of messages. `variables` of the
  // template: an object, or null. Throws Error with the reason if the model has
  // no chat template, or if that refuses the messages.
  std::string rendered(const nlohmann::ordered_json& messages,
                       const nlohmann::ordered_json* variables = nullptr) const;
  // The tokens of such a text.
  std::vector<int64_t> prompt(const std::string& rendered) const;
  // More bytes than a text of so many tokens has: four for each byte of the
  // longest token, since a tokenizer may shorten a character of four bytes to
  // one. (Only a text that is mostly dropped, such as spaces that a tokenizer
  // joins, may have more.)
  size_t most_bytes(int64_t tokens) const;

  std::string name;
  nn::Tokenizer tokenizer;
  std::optional<nn::ChatTemplate> chat = {};
  std::string why_no_chat = {};
  nn::GenerationConfig defaults = {};  // for what a request leaves out
};

}  // namespace dtensor::examples
