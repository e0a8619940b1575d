// SPDX-License-Identifier: Apache-2.0
// A checkpoint's name, tokenizer, chat template and defaults, for its clients.
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
  // Reads the files of a folder. If `name` is empty, the model gets the name of
  // the folder.
  static ServedModel read(const std::string& dir, std::string name = "");

  // Makes a prompt from a list of messages with the chat template. `variables`,
  // an object or null, are passed to the template. Throws Error with the reason
  // if the model has no chat template, or if the template refuses the messages.
  std::string rendered(const nlohmann::ordered_json& messages,
                       const nlohmann::ordered_json* variables = nullptr) const;
  // The tokens of a text that rendered() returned.
  std::vector<int64_t> prompt(const std::string& rendered) const;
  // An upper bound of the bytes of a text of so many tokens: four for each byte
  // of the longest token, since a tokenizer may turn a character of four bytes
  // into one byte. (Only a text that the tokenizer mostly drops, such as spaces
  // that it joins, may have more bytes.)
  size_t most_bytes(int64_t tokens) const;

  std::string name;
  nn::Tokenizer tokenizer;
  std::optional<nn::ChatTemplate> chat = {};
  std::string why_no_chat = {};
  nn::GenerationConfig defaults = {};  // for members that a request leaves out
};

}  // namespace dtensor::examples
