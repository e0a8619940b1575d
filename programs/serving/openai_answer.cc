// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/openai_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace dtensor::examples {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json error_json(const ApiError& e) {
  const auto or_null = [](const std::string& s) {
    return s.empty() ? Json() : Json(s);
  };
  const char* type = e.status == 429   ? "rate_limit_error"
                     : e.status == 401 ? "authentication_error"
                     : e.status >= 500 ? "server_error"
                                       : "invalid_request_error";
  return {{"error",
           {{"message", e.what()},
            {"type", type},
            {"param", or_null(e.param)},
            {"code", or_null(e.code)}}}};
}

OpenAiAnswer::OpenAiAnswer(const OpenAiRequest& request,
                           const ServedModel& model, int64_t number)
    : request_(request),
      model_(model),
      id_(fmt::format("{}-{}", request.chat ? "chatcmpl" : "cmpl", number)),
      created_(std::time(nullptr)) {
  for (size_t i = 0; i < request.texts.size(); ++i)
    choices_.push_back({.place = {nn::TextStream(model.tokenizer)}});
}

Json OpenAiAnswer::head(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_.name},
          {"choices", Json::array()}};
}

Json OpenAiAnswer::usage(const AnswerTokens& tokens) const {
  int64_t cached = 0;  // of each prompt once, though it has n texts
  for (size_t i = 0; i < tokens.cached.size(); i += request_.n)
    cached += tokens.cached[i];
  return {{"prompt_tokens", request_.prompt_tokens},
          {"completion_tokens", tokens.generated},
          {"total_tokens", request_.prompt_tokens + tokens.generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string OpenAiAnswer::text(int64_t id) const {
  return model_.tokenizer.decode(std::vector{id}, {.skip_special = false});
}

Json OpenAiAnswer::one(int64_t id, double logprob) const {
  const std::string token = text(id);
  return {{"token", token},
          {"logprob", logprob},
          {"bytes", std::vector<uint8_t>(token.begin(), token.end())}};
}

Json OpenAiAnswer::logprobs(const std::vector<nn::DrawnToken>& tokens,
                            Place& place) const {
  if (!request_.logprobs) return {};
  if (request_.chat) {
    Json content = Json::array();
    for (const nn::DrawnToken& t : tokens) {
      Json token = one(t.id, t.logprob);
      token["top_logprobs"] = Json::array();
      for (const auto& [id, logprob] : t.likeliest)
        token["top_logprobs"].push_back(one(id, logprob));
      content.push_back(std::move(token));
    }
    return {{"content", content}, {"refusal", nullptr}};
  }
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const nn::DrawnToken& t : tokens) {
    // The first token of a prompt has no logprob: no token is before it.
    const bool known = !std::isnan(t.logprob);
    out["tokens"].push_back(text(t.id));
    out["token_logprobs"].push_back(known ? Json(t.logprob) : Json());
    Json likeliest = Json::object();
    for (const auto& [id, logprob] : t.likeliest)
      likeliest.emplace(text(id), logprob);
    out["top_logprobs"].push_back(known ? std::move(likeliest) : Json());
    out["text_offset"].push_back(place.characters);
    const std::string shown = place.before.push(t.id);
    place.characters += std::count_if(
        shown.begin(), shown.end(), [](char c) { return (c & 0xC0) != 0x80; });
  }
  return out;
}

Json OpenAiAnswer::begin(size_t choice) const {
  return chunk_of(choice, {{"role", "assistant"}, {"content", ""}}, {}, {});
}

Json OpenAiAnswer::chunk_of(size_t choice, Json delta, Json logprobs,
                            Json finish) const {
  Json out = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  out["choices"].push_back(
      {{"index", choice},
       {request_.chat ? "delta" : "text", std::move(delta)},
       {"logprobs", std::move(logprobs)},
       {"finish_reason", std::move(finish)}});
  if (request_.include_usage) out["usage"] = nullptr;
  return out;
}

Json OpenAiAnswer::chunk(size_t choice, const nn::TextPiece& piece,
                         const char* finish) {
  Json delta = piece.text;
  if (request_.chat) {
    delta = Json::object();
    if (!piece.text.empty() || !piece.tokens.empty())
      delta["content"] = piece.text;
  }
  Json probabilities = piece.tokens.empty()
                           ? Json()
                           : logprobs(piece.tokens, choices_[choice].place);
  return chunk_of(choice, std::move(delta), std::move(probabilities),
                  finish ? Json(finish) : Json());
}

Json OpenAiAnswer::usage_chunk(const AnswerTokens& tokens) const {
  Json out = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  out["usage"] = usage(tokens);
  return out;
}

void OpenAiAnswer::add(size_t choice, const nn::TextPiece& piece,
                       const char* finish) {
  Choice& c = choices_[choice];
  c.all.text += piece.text;
  c.all.tokens.insert(c.all.tokens.end(), piece.tokens.begin(),
                      piece.tokens.end());
  c.finish = finish;
}

Json OpenAiAnswer::whole(const AnswerTokens& tokens) const {
  Json out = head(request_.chat ? "chat.completion" : "text_completion");
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& c = choices_[i];
    Json choice = {{"index", i}};
    if (request_.chat)
      choice["message"] = {
          {"role", "assistant"}, {"content", c.all.text}, {"refusal", nullptr}};
    else
      choice["text"] = c.all.text;
    Place place{nn::TextStream(model_.tokenizer)};
    choice["logprobs"] = logprobs(c.all.tokens, place);
    choice["finish_reason"] = c.finish;
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage(tokens);
  return out;
}

}  // namespace dtensor::examples
