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

  // The tokens that ask for the answer to a list of messages. `variables` of
  // the template: an object, or null. Throws Error with the reason if the model
  // has no chat template, or if that refuses the messages.
  std::vector<int64_t> prompt(
      const nlohmann::ordered_json& messages,
      const nlohmann::ordered_json* variables = nullptr) const;

  std::string name;
  nn::Tokenizer tokenizer;
  std::optional<nn::ChatTemplate> chat = {};
  std::string why_no_chat = {};
  nn::GenerationConfig defaults = {};  // for what a request leaves out
};

}  // namespace dtensor::examples
