// SPDX-License-Identifier: Apache-2.0
// The answer to a request as text.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "dtensor/nn/text/text_pieces.h"
#include "programs/serving/request_queue.h"

namespace dtensor::examples {

// The tokens of an answer so far.
struct AnswerTokens {
  int64_t generated = 0;
  // For each text that has begun, the tokens of its prompt that were not
  // computed again.
  std::vector<int64_t> cached = {};
};

// Called with a piece of a text, and null or, with its last piece, the reason
// why it ends: "stop" or "length". Returns whether to go on.
using ShowPiece =
    std::function<bool(size_t text, const nn::TextPiece&, const char* finish)>;

// Shows every piece of all texts of a ticket until they have ended. `pieces`
// has one for each text. Counts the tokens. Returns false if goes_on() does,
// which is asked at least every 50 ms, or if shown() does; the texts then still
// run. Throws Error if the run has failed.
bool follow(Ticket&, std::vector<nn::TextPieces>& pieces, AnswerTokens&,
            const std::function<bool()>& goes_on, const ShowPiece& shown);

}  // namespace dtensor::examples
