// SPDX-License-Identifier: Apache-2.0
// Turns generated tokens into text, which ends before the first stop string.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/sampling.h"
#include "dtensor/nn/text/tokenizer.h"

namespace dtensor::nn {

// New text that later tokens cannot change, with the tokens that begin in it.
struct TextPiece {
  std::string text = {};
  std::vector<DrawnToken> tokens = {};
};

// Makes the pieces of one text. All pieces joined are the text of the tokens up
// to the stop string that is complete first (if one token completes several, up
// to the one that begins first). Text that may be the beginning of a stop
// string is held back.
class TextPieces {
 public:
  // Stop strings must not be empty.
  TextPieces(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : stream_(tokenizer), stop_(std::move(stop)) {}

  // Takes the next token. REQUIRES: !stopped().
  TextPiece push(const DrawnToken&);
  // Takes a token of the prompt, if the text begins with the prompt. No stop
  // string is looked for in it.
  TextPiece push_prompt(const DrawnToken&);
  // Ends the text: no tokens follow. Returns the text that was held back, which
  // is empty after a stop string.
  TextPiece finish();
  // Whether a stop string has come.
  bool stopped() const { return stopped_; }

 private:
  // Takes the first `bytes` bytes of held_, and the tokens that begin in them.
  TextPiece take(size_t bytes);
  TextPiece add(const std::string& text);

  TextStream stream_;
  std::vector<std::string> stop_;
  std::string held_;
  // Tokens that are in no piece yet, with the place in held_ where they begin.
  std::deque<std::pair<size_t, DrawnToken>> tokens_;
  bool stopped_ = false;
};

}  // namespace dtensor::nn
