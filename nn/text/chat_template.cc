// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/chat_template.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <ranges>
#include <sstream>

#include "dtensor/interrupt.h"
#include "dtensor/nn/text/field.h"
#include "dtensor/nn/text/unicode.h"
#include "dtensor/placement/error.h"
#include "jinja/budget.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"

namespace dtensor::nn {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

// Limits for templates, because their checkpoints may come from anybody.
// docs/text.md lists the limits. With these depths, less than 1 MB of stack is
// used, or 4 MB with AddressSanitizer.
constexpr size_t kMostSource = size_t{512} << 10;  // bytes
bool is_interrupted() { return interrupted() != 0; }
constexpr jinja::limits kReading = {.depth = 200,
                                    .steps = 100'000'000,
                                    .bytes = size_t{1} << 30,
                                    .seconds = 10,
                                    .stopped = is_interrupted};
constexpr jinja::limits kRendering = {.depth = 500,
                                      .steps = 1'000'000,
                                      .bytes = size_t{32} << 20,
                                      .seconds = 10,
                                      .stopped = is_interrupted};

struct Template {
  explicit Template(std::string text) : source(std::move(text)) {
    DT_CHECK(source.size() <= kMostSource, "chat_template",
             "the template has {} bytes, but this library reads at most {}; "
             "use a shorter one",
             source.size(), kMostSource);
    try {
      const jinja::budget budget(kReading);
      jinja::lexer lexer;
      auto tokens = lexer.tokenize(source);
      program = jinja::parse_from_tokens(tokens);
    } catch (const jinja::budget_exceeded& e) {
      fail("chat_template", "{}", e.what());
    } catch (const std::exception& e) {
      fail("chat_template",
           "the template cannot be read: {}; correct it, or leave out what "
           "this library does not know",
           one_line(e.what()));
    }
  }

  // Makes one short line in UTF-8 of a message of the Jinja library. A message
  // may have several lines, and may quote the template in any length and
  // encoding.
  static std::string one_line(std::string_view text) {
    std::string line;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) {
      if (word.find_first_not_of('-') == word.npos) continue;
      line += (line.empty() ? "" : " ") + word;
    }
    return text::shortened(line);
  }

  std::string source;
  jinja::program program;
};

// A message may have its reasoning under one of several names. As in
// transformers, the template gets it under both names that templates read.
ordered_json with_reasoning(ordered_json messages) {
  for (ordered_json& message : messages) {
    if (!message.is_object()) continue;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      if (!message.contains(name) || message[name].is_null()) continue;
      const ordered_json reasoning = message[name];
      if (!message.contains("thinking")) message["thinking"] = reasoning;
      message["reasoning_content"] = reasoning;
      break;
    }
  }
  return messages;
}

}  // namespace

struct ChatTemplate::Parts {
  std::map<std::string, Template> templates;  // by name
  std::map<std::string, std::string> tokens;
};

ChatTemplate::ChatTemplate(const std::string& source,
                           const std::map<std::string, std::string>& tokens) {
  auto parts = std::make_shared<Parts>();
  parts->templates.emplace("default", source);
  parts->tokens = tokens;
  parts_ = std::move(parts);
}

ChatTemplate ChatTemplate::from_pretrained(const std::string& dir) {
  const auto path = [&](const char* name) {
    return (std::filesystem::path(dir) / name).string();
  };
  const auto parts = std::make_shared<Parts>();
  const std::string own = path("chat_template.jinja");
  std::error_code ignored;
  const bool alone = std::filesystem::exists(own, ignored);
  if (alone)
    parts->templates.emplace("default", text::read_file("chat_template", own));
  for (const char* name :
       {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (!std::filesystem::exists(path(name), ignored)) continue;
    const json file = text::read_json(path(name));
    const text::Field all(file, path(name) + ": ");
    for (const auto& [member, value] : file.items()) {
      if (!member.ends_with("_token") || value.is_null()) continue;
      const text::Field token = all.at(member);
      if (value.is_string()) parts->tokens[member] = token.text();
      if (value.is_object()) parts->tokens[member] = token.at("content").text();
    }
    const text::Field source = all.at("chat_template");
    if (alone || source.is_null()) continue;
    if (source.value().is_string()) {
      parts->templates.emplace("default", source.text());
    } else {
      if (!source.value().is_array())
        source.refuse("a template or a list of them");
      for (const text::Field& f : source.list())
        parts->templates.emplace(f.at("name").text(), f.at("template").text());
    }
  }
  DT_CHECK(!parts->templates.empty(), "chat_template",
           "{} has no template, neither in chat_template.jinja nor in "
           "\"chat_template\" of tokenizer_config.json; add one, or pass a "
           "plain prompt",
           dir);
  ChatTemplate result;
  result.parts_ = parts;
  return result;
}

std::string ChatTemplate::apply(const ordered_json& messages,
                                const Options& options) const {
  DT_CHECK(messages.is_array(), "chat_template",
           "messages are of the JSON type {}; pass a list of objects with "
           "\"role\" and \"content\"",
           messages.type_name());
  const auto& all = parts_->templates;
  auto chosen = options.tools ? all.find("tool_use") : all.end();
  if (chosen == all.end()) chosen = all.find("default");
  DT_CHECK(chosen != all.end(), "chat_template",
           "no template is named \"default\" (the names are: {}); name one so",
           text::shortened(
               fmt::format("{}", fmt::join(std::views::keys(all), ", "))));
  ordered_json variables = ordered_json::object();
  DT_CHECK(!options.variables || options.variables->is_object(),
           "chat_template",
           "variables are of the JSON type {}; pass an object, such as "
           "{{\"enable_thinking\": false}}",
           options.variables->type_name());
  if (options.variables) variables.update(*options.variables);
  variables["messages"] = with_reasoning(messages);
  variables["tools"] = options.tools ? *options.tools : ordered_json();
  variables["documents"] = variables.value("documents", ordered_json());
  variables["add_generation_prompt"] = options.add_generation_prompt;
  const Template& t = chosen->second;
  try {
    const jinja::budget budget(kRendering);
    jinja::context context(t.source);
    if (options.now) context.current_time = *options.now;
    // The tokens come from the checkpoint, too. Unlike the variables below,
    // they do not widen the budget.
    for (const auto& [name, token] : parts_->tokens)
      context.set_val(name, jinja::mk_val<jinja::value_string>(token));
    jinja::global_from_json(context, variables, false);
    jinja::runtime runtime(context);
    return jinja::runtime::gather_string_parts(runtime.execute(t.program))
        ->as_string()
        .str();
  } catch (const std::exception& e) {
    fail("chat_template", "{}", Template::one_line(e.what()));
  }
}

}  // namespace dtensor::nn
