// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in a text before it is split ("added_tokens").
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/text/regex.h"
#include "dtensor/nn/text/trie.h"

namespace dtensor::nn::text {

struct AddedToken {
  int64_t id;
  std::string content;
  bool special = false;      // decode() may skip it
  bool single_word = false;  // found only if no word character is beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalized text
};

// Looks for a set of tokens.
class TokenFinder {
 public:
  // Adds a token. `as` is the text to look for: the token's content, or the
  // normalized form of the content. If two tokens have the same text, the first
  // one is found. Does nothing if `as` is empty.
  void add(const AddedToken& token, std::string_view as);

  // Calls found(range, token) for each part of the text, in order. A part is a
  // token (with the white space that it takes), or text before, between or
  // after tokens, for which `token` is null. If several tokens begin at one
  // place, only the longest may be found.
  void split(std::string_view text,
             const std::function<void(Range, const AddedToken*)>& found) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie trie_;
  std::array<bool, 256> begins_ = {};  // by byte: whether it begins a token
};

}  // namespace dtensor::nn::text
