// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/openai_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "dtensor/program/json_text.h"

namespace dtensor::examples {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostChoices = 128, kMostLikeliest = 20;
constexpr size_t kMostStops = 16, kMostStopBytes = 1024;
constexpr int kDeepest = 64, kMostMembers = 10000;

template <class... Args>
[[noreturn]] void refuse(std::string_view param,
                         fmt::format_string<Args...> text, Args&&... args) {
  throw ApiError(400, fmt::format(text, std::forward<Args>(args)...),
                 std::string(param));
}

// Refuses a body that nests too deeply, since writing a value as text takes
// stack for each level; and one with too many members, since finding a member
// looks at all members of an object, so that reading could take minutes. Json's
// own parser callback would be too slow: with it, the parser looks at a whole
// list at the end of each object in the list.
void check_shape(std::string_view body) {
  int depth = 0, members = 0;
  bool in_text = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_text && c == '\\')
      ++i;  // the next character is part of the string
    else if (c == '"')
      in_text = !in_text;
    else if (in_text)
      continue;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    else if (c == ':')
      ++members;
    if (depth > kDeepest)
      refuse("", "the body nests lists and objects deeper than {}; nest fewer",
             kDeepest);
    if (members > kMostMembers)
      refuse("", "the body has more than {} members; write fewer",
             kMostMembers);
  }
}

// Members that are accepted, but have no effect.
constexpr std::array kIgnored = {
    "user",         "metadata",          "store",
    "service_tier", "safety_identifier", "prompt_cache_key"};
constexpr std::array kShared = {"model",
                                "stream",
                                "stream_options",
                                "n",
                                "best_of",
                                "stop",
                                "seed",
                                "temperature",
                                "top_p",
                                "top_k",
                                "min_p",
                                "logprobs",
                                "max_tokens",
                                "logit_bias",
                                "presence_penalty",
                                "frequency_penalty",
                                "ignore_eos",
                                "repetition_penalty"};
constexpr std::array kOfChat = {"messages", "top_logprobs",
                                "max_completion_tokens", "chat_template_kwargs",
                                "response_format"};
constexpr std::array kOfText = {"prompt", "echo"};

// Whether the value of an unsupported member asks for nothing, so that the
// request can be accepted.
bool asks_for_nothing(const std::string& name, const Json& value) {
  if (value.is_null()) return true;
  if (name == "tools" || name == "functions")
    return value.is_array() && value.empty();
  if (name == "tool_choice" || name == "function_call")
    return value == "none" || value == "auto";
  if (name == "parallel_tool_calls") return value.is_boolean();
  if (name == "modalities") return value == Json::array({"text"});
  return name == "suffix" && value == "";
}

class Reader {
 public:
  Reader(std::string_view body, bool chat, const ServedModel& model)
      : chat_(chat), model_(model) {
    check_shape(body);
    json_ = Json::parse(body, nullptr, false);
    if (!json_.is_object()) refuse("", "the body is not a JSON object");
    const auto has = [](const auto& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const auto& [name, value] : json_.items())
      if (!has(kShared, name) && !has(kIgnored, name) &&
          !(chat ? has(kOfChat, name) : has(kOfText, name)) &&
          !asks_for_nothing(name, value))
        refuse(name, "'{}' is not supported by this server; leave it out",
               name.substr(0, 80));
  }

  OpenAiRequest read(int64_t longest, int64_t most) {
    check_model();
    OpenAiRequest out{.chat = chat_, .stream = boolean("stream", false)};
    if (const Json* options = member("stream_options")) {
      if (!options->is_object() || !out.stream)
        refuse("stream_options",
               "'stream_options' must be an object, and is only for "
               "\"stream\": true");
      out.include_usage = options->value("include_usage", Json(false)) == true;
    }
    out.stop = strings("stop");
    check_unsupported();
    nn::TextRequest text{.sampling = sampling()};
    if (!boolean("ignore_eos", false)) text.stop = model_.defaults.stop;
    read_logprobs(out, text);
    out.echo = boolean("echo", false);
    text.scores_prompt = out.echo && out.logprobs;
    longest_ = longest;
    // With echo, "max_tokens": 0 is allowed: the answer is the prompt alone.
    least_ =
        out.echo && member("max_tokens") && *member("max_tokens") == 0 ? 0 : 1;
    const int64_t n = integer("n", 1, 1, kMostChoices);
    check_count(n, most);
    out.n = static_cast<size_t>(n);
    const uint64_t seed = read_seed();
    for (std::vector<int64_t>& prompt : prompts()) {
      const auto size = std::ssize(prompt);
      if (size > longest - least_)
        refuse_length(fmt::format("{} tokens", size));
      out.prompt_tokens += size;
      text.prompt = std::move(prompt);
      text.tokens = tokens(longest - size);
      for (int64_t i = 0; i < n; ++i) {
        text.sampling.seed = seed + static_cast<uint64_t>(i);
        out.texts.push_back(text);
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse_length(const std::string& size) const {
    throw ApiError(
        400,
        fmt::format(
            "the prompt has {}, but it and its continuation together "
            "may have {} tokens, which are at most {} bytes; shorten it",
            size, longest_, model_.most_bytes(longest_)),
        chat_ ? "messages" : "prompt", "context_length_exceeded");
  }
  // Returns the text. Refuses one that is far too long, before it is split into
  // tokens.
  const std::string& short_enough(const std::string& text) const {
    if (text.size() > model_.most_bytes(longest_))
      refuse_length(fmt::format("{} bytes", text.size()));
    return text;
  }
  // Null if the request lacks the member, or has null for it.
  const Json* member(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  bool boolean(const char* name, bool otherwise) const {
    const Json* m = member(name);
    if (!m) return otherwise;
    if (!m->is_boolean()) refuse(name, "'{}' is not true or false", name);
    return m->get<bool>();
  }
  int64_t integer(const char* name, int64_t otherwise, int64_t min,
                  int64_t max) const {
    const Json* m = member(name);
    if (!m) return otherwise;
    const bool fits =
        m->is_number_integer() &&
        !(m->is_number_unsigned() && m->get<uint64_t>() > uint64_t{INT64_MAX});
    if (!fits || m->get<int64_t>() < min || m->get<int64_t>() > max)
      refuse(name, "'{}' is {}, but must be an integer from {} to {}", name,
             shown(*m), min, max);
    return m->get<int64_t>();
  }
  double number(const char* name, double otherwise, double min,
                double max) const {
    const Json* m = member(name);
    if (!m) return otherwise;
    if (!m->is_number() || !(m->get<double>() >= min) ||
        !(m->get<double>() <= max))
      refuse(name, "'{}' is {}, but must be a number from {} to {}", name,
             shown(*m), min, max);
    return m->get<double>();
  }
  std::vector<std::string> strings(const char* name) const {
    const Json* m = member(name);
    if (!m) return {};
    const Json list = m->is_array() ? *m : Json::array({*m});
    if (list.size() > kMostStops)
      refuse(name, "'{}' has {} strings; write at most {}", name, list.size(),
             kMostStops);
    std::vector<std::string> out;
    for (const Json& s : list) {
      if (!s.is_string() || s.get<std::string>().empty())
        refuse(name, "'{}' must be a string, or a list of strings, none empty",
               name);
      out.push_back(s.get<std::string>());
      if (out.back().size() > kMostStopBytes)
        refuse(name, "'{}' has a string of {} bytes; write at most {}", name,
               out.back().size(), kMostStopBytes);
    }
    return out;
  }

  void check_model() const {
    const Json* m = member("model");
    if (m && *m != model_.name)
      throw no_model(m->is_string() ? m->get<std::string>() : shown(*m),
                     model_);
  }
  void check_unsupported() const {
    if (const Json* m = member("best_of"))
      if (const int64_t n = integer("n", 1, 1, kMostChoices); *m != n)
        refuse("best_of", "'best_of' is {}, but 'n' is {}; write equal numbers",
               shown(*m), n);
    const Json* format = member("response_format");
    if (format &&
        (!format->is_object() || format->value("type", Json()) != "text"))
      refuse("response_format",
             "'response_format' must be {{\"type\": \"text\"}} here");
  }

  nn::Sampling sampling() const {
    nn::Sampling s = model_.defaults.sampling;
    s.temperature = number("temperature", s.temperature, 0, 100);
    s.top_p = number("top_p", s.top_p, 0, 1);
    s.top_k = integer("top_k", s.top_k, 0, INT64_MAX);
    s.min_p = number("min_p", s.min_p, 0, 1);
    s.presence_penalty = number("presence_penalty", 0, -2, 2);
    s.frequency_penalty = number("frequency_penalty", 0, -2, 2);
    s.repetition_penalty =
        number("repetition_penalty", s.repetition_penalty, 1e-3, 1e3);
    const Json* bias = member("logit_bias");
    if (bias && !bias->is_object())
      refuse("logit_bias", "'logit_bias' must be an object");
    if (bias)
      for (const auto& [token, value] : bias->items()) {
        const bool digits = !token.empty() && token.size() < 10 &&
                            token.find_first_not_of("0123456789") == token.npos;
        if (!digits || !value.is_number() ||
            std::fabs(value.get<double>()) > 100)
          refuse("logit_bias",
                 "'logit_bias' has {}: {}; write a token's id and a number "
                 "from -100 to 100",
                 shown(Json(token)), shown(value));
        s.logit_bias[std::stoll(token)] = value.get<double>();
      }
    return s;
  }
  uint64_t read_seed() const {
    if (member("seed"))
      return static_cast<uint64_t>(integer("seed", 0, INT64_MIN, INT64_MAX));
    std::random_device random;
    return (uint64_t{random()} << 32) | random();
  }
  void read_logprobs(OpenAiRequest& out, nn::TextRequest& text) const {
    if (chat_) {
      out.logprobs = boolean("logprobs", false);
      text.likeliest = integer("top_logprobs", 0, 0, kMostLikeliest);
      if (text.likeliest > 0 && !out.logprobs)
        refuse("top_logprobs", "'top_logprobs' is only for \"logprobs\": true");
    } else {
      out.logprobs = member("logprobs");
      text.likeliest = integer("logprobs", 0, 0, kMostLikeliest);
    }
    text.logprobs = out.logprobs;
  }
  int64_t tokens(int64_t room) const {
    const char* name = member("max_completion_tokens") ? "max_completion_tokens"
                                                       : "max_tokens";
    const int64_t otherwise = chat_ ? room : std::min<int64_t>(room, 16);
    const int64_t n = integer(name, otherwise, least_, INT64_MAX);
    if (n > room)
      throw ApiError(400,
                     fmt::format("'{}' is {}, but this prompt leaves room for "
                                 "only {}; write at most that",
                                 name, n, room),
                     name, "context_length_exceeded");
    return n;
  }

  // Checks the number of texts before any of them is made.
  void check_count(int64_t n, int64_t most) const {
    const int64_t prompts =
        several_prompts() ? std::ssize(*member("prompt")) : 1;
    if (prompts > most / n)
      refuse(
          prompts > 1 ? "prompt" : "n",
          "the request asks for {} texts, as 'n' is {} and the number of "
          "prompts is {}, but this server takes at most {} at once; write {}",
          prompts * n, n, prompts, most,
          prompts == 1 ? "a smaller 'n'"
          : n == 1     ? "fewer prompts"
                       : "fewer prompts or a smaller 'n'");
  }
  bool several_prompts() const {
    const Json* m = chat_ ? nullptr : member("prompt");
    return m && m->is_array() && !m->empty() && !m->front().is_number_integer();
  }
  std::vector<std::vector<int64_t>> prompts() const {
    if (!chat_) return plain_prompts();
    return {messages()};
  }
  // The prompts are a text, a list of its token ids, or a list of either.
  std::vector<std::vector<int64_t>> plain_prompts() const {
    const Json* m = member("prompt");
    std::vector<std::vector<int64_t>> out;
    for (const Json& p :
         several_prompts() ? *m : Json::array({m ? *m : Json()})) {
      const bool ids = p.is_array() && !p.empty() &&
                       std::all_of(p.begin(), p.end(), [](const Json& i) {
                         return i.is_number_integer();
                       });
      if (p.is_string())
        out.push_back(model_.tokenizer.encode(
            short_enough(p.get_ref<const std::string&>())));
      else if (ids)
        out.push_back(p.get<std::vector<int64_t>>());
      else
        refuse("prompt",
               "'prompt' must be a text, a list of at least one token id, or "
               "a list of several of these");
      if (out.back().empty())
        refuse("prompt", "'prompt' has no tokens; write at least one");
    }
    return out;
  }
  std::vector<int64_t> messages() const {
    if (!model_.chat)
      refuse("messages",
             "this model has no chat template that this server can use; use "
             "/v1/completions");
    const Json* m = member("messages");
    if (!m || !m->is_array() || m->empty())
      refuse("messages", "'messages' must be a list with at least one message");
    Json list = *m;
    for (Json& message : list) read_message(message);
    const Json* variables = member("chat_template_kwargs");
    if (variables && !variables->is_object())
      refuse("chat_template_kwargs", "'chat_template_kwargs' is not an object");
    return model_.prompt(short_enough(model_.rendered(list, variables)));
  }
  // Replaces content that is a list of text parts by the joined text.
  static void read_message(Json& message) {
    const bool whole = message.is_object() && message.contains("content") &&
                       message.contains("role") && message["role"].is_string();
    if (!whole)
      refuse("messages",
             "each of 'messages' must be an object with 'role' and 'content', "
             "of which 'role' is a text");
    Json& content = message["content"];
    if (!content.is_array()) {
      if (!content.is_string())
        refuse("messages",
               "'content' of a message must be a text or a list of parts");
      return;
    }
    std::string text;
    for (const Json& part : content) {
      const bool is_text = part.is_object() &&
                           part.value("type", Json()) == "text" &&
                           part.value("text", Json()).is_string();
      if (!is_text)
        refuse("messages",
               "this server only reads parts of type \"text\", which must have "
               "a string 'text'");
      text += part["text"].get<std::string>();
    }
    content = text;
  }

  const bool chat_;
  const ServedModel& model_;
  Json json_;
  int64_t longest_ = 0,
          least_ = 1;  // the most tokens of a text; the fewest to generate
};

}  // namespace

ApiError no_model(const std::string& name, const ServedModel& model) {
  return ApiError(
      404,
      fmt::format("there is no model \"{}\"; this server has \"{}\"",
                  name.substr(0, 200), model.name),
      "model", "model_not_found");
}

OpenAiRequest read_request(std::string_view body, bool chat,
                           const ServedModel& model, int64_t longest,
                           int64_t most) {
  return Reader(body, chat, model).read(longest, most);
}

}  // namespace dtensor::examples
