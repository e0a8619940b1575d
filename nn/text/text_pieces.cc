// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/text_pieces.h"

#include <algorithm>

namespace dtensor::nn {

TextPiece TextPieces::push(const DrawnToken& token) {
  tokens_.emplace_back(held_.size(), token);
  return add(stream_.push(token.id));
}

TextPiece TextPieces::push_prompt(const DrawnToken& token) {
  tokens_.emplace_back(held_.size(), token);
  held_ += stream_.push(token.id);
  return take(held_.size());
}

TextPiece TextPieces::finish() {
  if (stopped_) return {};
  TextPiece piece = add(stream_.finish());
  if (stopped_) return piece;
  TextPiece rest = take(held_.size());
  piece.text += rest.text;
  for (auto& [at, token] : tokens_) rest.tokens.push_back(std::move(token));
  tokens_.clear();
  piece.tokens.insert(piece.tokens.end(), rest.tokens.begin(),
                      rest.tokens.end());
  return piece;
}

TextPiece TextPieces::add(const std::string& text) {
  held_ += text;
  size_t first = held_.npos;
  for (const std::string& s : stop_) first = std::min(first, held_.find(s));
  if (first != held_.npos) {
    stopped_ = true;
    return take(first);
  }
  // The length of the longest end of held_ with which a stop string begins.
  size_t keep = 0;
  for (const std::string& s : stop_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
  return take(held_.size() - keep);
}

TextPiece TextPieces::take(size_t bytes) {
  TextPiece piece{.text = held_.substr(0, bytes)};
  held_.erase(0, bytes);
  while (!tokens_.empty() && tokens_.front().first < bytes) {
    piece.tokens.push_back(std::move(tokens_.front().second));
    tokens_.pop_front();
  }
  for (auto& [at, token] : tokens_) at -= std::min(at, bytes);
  return piece;
}

}  // namespace dtensor::nn
