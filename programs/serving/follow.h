// SPDX-License-Identifier: Apache-2.0
// Turns the events of a ticket into the text that its client sees.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "dtensor/nn/text/text_pieces.h"
#include "programs/serving/request_queue.h"

namespace dtensor::examples {

// The numbers of tokens of an answer so far.
struct AnswerTokens {
  int64_t generated = 0;
  // For each text, the tokens of its prompt that were in the cache
  // (Engine::cached_tokens()); 0 before its first generated token.
  std::vector<int64_t> cached = {};
};

// Called with a piece of a text. For the last piece, `finish` says why the text
// ends, "stop" or "length"; otherwise it is null. Returns whether to go on.
using ShowPiece =
    std::function<bool(size_t text, const nn::TextPiece&, const char* finish)>;

// Calls shown() with every piece of all texts of a ticket, until all of them
// have ended. `pieces` has an object for each text. Counts the tokens. Returns
// false as soon as shown() or goes_on(), which is called at least every 50 ms,
// does; the engine then continues the texts until the ticket is destroyed.
// Throws Error if the run has failed.
bool follow(Ticket&, std::vector<nn::TextPieces>& pieces, AnswerTokens&,
            const std::function<bool()>& goes_on, const ShowPiece& shown);

}  // namespace dtensor::examples
