// SPDX-License-Identifier: Apache-2.0
#include "programs/serving/follow.h"

namespace dtensor::examples {

bool follow(Ticket& ticket, std::vector<nn::TextPieces>& all,
            AnswerTokens& tokens, const std::function<bool()>& goes_on,
            const ShowPiece& shown) {
  std::vector<bool> ended(all.size());
  tokens.cached.resize(all.size());
  for (size_t left = ended.size(); left > 0;) {
    const std::optional<TextEvent> e = ticket.next();
    if (!goes_on()) return false;
    if (!e || ended[e->text]) continue;
    nn::TextPieces& pieces = all[e->text];
    const char* finish = nullptr;
    nn::TextPiece piece;
    if (e->of_prompt) {
      piece = pieces.push_prompt(*e->token);
    } else if (e->token) {
      ++tokens.generated;
      tokens.cached[e->text] = e->cached;
      piece = pieces.push(*e->token);
      if (pieces.stopped()) {
        ticket.cancel(e->text);
        finish = "stop";
      }
    } else {
      piece = pieces.finish();
      finish = *e->finish == nn::Finish::kLength && !pieces.stopped() ? "length"
                                                                      : "stop";
    }
    if (finish) {
      ended[e->text] = true;
      --left;
    }
    if (!shown(e->text, piece, finish)) return false;
  }
  return true;
}

}  // namespace dtensor::examples
