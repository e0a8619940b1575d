// SPDX-License-Identifier: Apache-2.0
// Turns messages into the form of text that a model was trained on, by the
// template that comes with its checkpoint.
#pragma once
#include <ctime>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace dtensor::nn {

class ChatTemplate {
 public:
  // Reads DIR/chat_template.jinja or, without that file, "chat_template" of
  // DIR/tokenizer_config.json: a template, or a list of {"name", "template"}.
  // The tokens that templates use, such as bos_token, are those of
  // tokenizer_config.json and special_tokens_map.json. Throws Error if there is
  // no template, or if it is not Jinja.
  static ChatTemplate from_pretrained(const std::string& dir);

  // A template of this text, with these tokens as its variables.
  explicit ChatTemplate(const std::string& source,
                        const std::map<std::string, std::string>& tokens = {});

  struct Options {
    // Whether to end with the beginning of the assistant's next message.
    bool add_generation_prompt = false;
    // Functions that the model may call: a list of JSON schemas, or null.
    const nlohmann::ordered_json* tools = nullptr;
    // Further variables of the template, such as {"enable_thinking": false}. A
    // variable overrides the token of the same name.
    const nlohmann::ordered_json* variables = nullptr;
    // The time that strftime_now() tells; the current time if not set.
    std::optional<std::time_t> now = std::nullopt;
  };

  // Returns the text of a list of messages, such as {"role": "user", "content":
  // "Hi"}. It equals that of transformers' apply_chat_template(). As in
  // transformers, a template gets the reasoning in a message under the names
  // "reasoning_content" and "thinking". If Options::tools is set and there is a
  // template named "tool_use", that one is used; otherwise, the one named
  // "default". Throws Error if the template raises an error, with its message,
  // if it exceeds a limit (docs/text.md), and for a construct that this library
  // does not know. Any number of threads may call this.
  std::string apply(const nlohmann::ordered_json& messages,
                    const Options&) const;
  std::string apply(const nlohmann::ordered_json& messages) const {
    return apply(messages, Options());
  }

 private:
  struct Parts;
  ChatTemplate() = default;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace dtensor::nn
