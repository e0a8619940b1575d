// SPDX-License-Identifier: Apache-2.0
// The text of generated tokens, which ends before the first of some strings.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/nn/sampling.h"
#include "dtensor/nn/text/tokenizer.h"

namespace dtensor::nn {

// Text that is sure, with the tokens that it consists of.
struct TextPiece {
  std::string text = {};
  std::vector<DrawnToken> tokens = {};
};

// For one text. All pieces joined are the text of the tokens up to a stop
// string: the first to be complete. Text that may become one is held back.
class TextPieces {
 public:
  // Stop strings must not be empty.
  TextPieces(const Tokenizer& tokenizer, std::vector<std::string> stop)
      : stream_(tokenizer), stop_(std::move(stop)) {}

  // The next token. REQUIRES: !stopped().
  TextPiece push(const DrawnToken&);
  // The same for a token of the prompt, if the text begins with that: no stop
  // string is looked for.
  TextPiece push_prompt(const DrawnToken&);
  // No tokens follow; returns what was held back.
  TextPiece finish();
  // Whether a stop string has come.
  bool stopped() const { return stopped_; }

 private:
  // Takes this many bytes of held_, and the tokens that begin in them.
  TextPiece take(size_t bytes);
  TextPiece add(const std::string& text);

  TextStream stream_;
  std::vector<std::string> stop_;
  std::string held_;
  // Tokens that no piece has, with where they begin in held_.
  std::deque<std::pair<size_t, DrawnToken>> tokens_;
  bool stopped_ = false;
};

}  // namespace dtensor::nn
