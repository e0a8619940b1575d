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
  // Reads the table from base64. The decoded bytes are 4 bytes with the size of
  // a trie in bytes, the trie, and the replacements, each ended by a zero byte.
  explicit Charsmap(const Field&);

  // Returns the text with replacements from the table. If a grapheme has fewer
  // than 6 bytes and an entry in the table, the entry replaces the grapheme.
  // Otherwise, entries replace its characters one by one. As in Hugging Face's
  // implementation, an entry for the front of a grapheme replaces the whole
  // grapheme.
  std::string apply(std::string_view text) const;

 private:
  // The replacement of the shortest prefix of `key` that the table has; null if
  // there is none.
  const char* find(std::string_view key) const;

  std::string place_;           // Field::place(), for errors
  std::vector<uint32_t> trie_;  // a double array, in darts-clone's layout
  std::string texts_;           // the replacements
};

}  // namespace dtensor::nn::text
