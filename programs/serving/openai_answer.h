// SPDX-License-Identifier: Apache-2.0
// Answers of OpenAI's HTTP interface.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/nn/text/text_pieces.h"
#include "programs/serving/follow.h"
#include "programs/serving/openai_request.h"

namespace dtensor::examples {

// Bytes that are not UTF-8 become U+FFFD.
std::string text_of(const nlohmann::ordered_json&);
nlohmann::ordered_json error_json(const ApiError&);

// The answer to one request: whole, or chunks of a stream.
class OpenAiAnswer {
 public:
  OpenAiAnswer(const OpenAiRequest&, const ServedModel&, int64_t number);

  // The first chunk of a chat's text.
  nlohmann::ordered_json begin(size_t choice) const;
  // `finish` is null, or the reason why the text ends with this piece.
  nlohmann::ordered_json chunk(size_t choice, const nn::TextPiece&,
                               const char* finish);
  nlohmann::ordered_json usage_chunk(const AnswerTokens&) const;

  // Collects a piece for whole().
  void add(size_t choice, const nn::TextPiece&, const char* finish);
  nlohmann::ordered_json whole(const AnswerTokens&) const;

 private:
  // The place at which the next token begins.
  struct Place {
    nn::TextStream before;
    int64_t characters = 0;
  };
  struct Choice {
    nn::TextPiece all = {};
    const char* finish = nullptr;
    Place place;  // behind the chunks before
  };
  nlohmann::ordered_json head(const char* object) const;
  nlohmann::ordered_json chunk_of(size_t choice, nlohmann::ordered_json delta,
                                  nlohmann::ordered_json logprobs,
                                  nlohmann::ordered_json finish) const;
  nlohmann::ordered_json usage(const AnswerTokens&) const;
  // The logprobs of tokens, the first of which begins there.
  nlohmann::ordered_json logprobs(const std::vector<nn::DrawnToken>&,
                                  Place&) const;
  nlohmann::ordered_json one(int64_t id, double logprob) const;
  std::string text(int64_t id) const;

  const OpenAiRequest& request_;
  const ServedModel& model_;
  std::string id_;
  int64_t created_;
  std::vector<Choice> choices_;
};

}  // namespace dtensor::examples
