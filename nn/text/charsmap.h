// SPDX-License-Identifier: Apache-2.0
// SentencePiece's table of character replacements ("precompiled_charsmap").
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/nn/text/field.h"

namespace dtensor::nn::text {

class Charsmap {
 public:
  // From base64: the number of bytes of a trie in four bytes, the trie, and
  // texts that each end in a zero byte.
  explicit Charsmap(const Field&);

  // The text with each grapheme, or else each character, replaced that the
  // table has. As in Hugging Face's reader of it, an entry for the front of a
  // grapheme replaces the whole grapheme.
  std::string apply(std::string_view text) const;

 private:
  // The replacement of the shortest prefix that the table has; null if none.
  const char* find(std::string_view key) const;

  std::string place_;
  std::vector<uint32_t> trie_;  // a double array, in darts-clone's layout
  std::string texts_;
};

}  // namespace dtensor::nn::text
