// SPDX-License-Identifier: Apache-2.0
// Makes the answers of OpenAI's HTTP interface as JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtensor/nn/text/text_pieces.h"
#include "programs/serving/follow.h"
#include "programs/serving/openai_request.h"

namespace dtensor::examples {

// The JSON as text. In its strings, bytes that are not UTF-8 become U+FFFD.
std::string text_of(const nlohmann::ordered_json&);
nlohmann::ordered_json error_json(const ApiError&);

// Makes the answer to one request: as a whole, or as the chunks of a stream.
class OpenAiAnswer {
 public:
  OpenAiAnswer(const OpenAiRequest&, const ServedModel&, int64_t number);

  // The first chunk of a choice in a chat: it has the role, and no text.
  nlohmann::ordered_json begin(size_t choice) const;
  // Returns the next chunk. `finish` is null, or the reason why the text ends
  // with this piece.
  nlohmann::ordered_json chunk(size_t choice, const nn::TextPiece&,
                               const char* finish);
  nlohmann::ordered_json usage_chunk(const AnswerTokens&) const;

  // Adds a piece to the answer that whole() returns.
  void add(size_t choice, const nn::TextPiece&, const char* finish);
  nlohmann::ordered_json whole(const AnswerTokens&) const;

 private:
  // Where the next token begins.
  struct Place {
    nn::TextStream before;   // has decoded the tokens before it
    int64_t characters = 0;  // of the text before it
  };
  struct Choice {
    nn::TextPiece all = {};
    const char* finish = nullptr;
    Place place;  // the end of the chunks made so far
  };
  nlohmann::ordered_json head(const char* object) const;
  nlohmann::ordered_json chunk_of(size_t choice, nlohmann::ordered_json delta,
                                  nlohmann::ordered_json logprobs,
                                  nlohmann::ordered_json finish) const;
  nlohmann::ordered_json usage(const AnswerTokens&) const;
  // The logprobs of these tokens; null if the request asks for none. The first
  // token begins at the Place. Moves the Place to the end of the last one,
  // except for a chat, which has no offsets.
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
