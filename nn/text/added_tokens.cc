// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/added_tokens.h"

#include <algorithm>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/unicode.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn::text {
namespace {

// Where the character before `at` begins.
size_t before(std::string_view text, size_t at) {
  do at--;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

// Whether the character from `at` on is part of a word.
bool is_word(std::string_view text, size_t at) {
  static const Regex word(fmt::format("[{}]", kRustWord), "added_tokens");
  const size_t begin = at;
  next_char(text, at);
  return word.matches(text.substr(begin, at - begin));
}

}  // namespace

void TokenFinder::add(const AddedToken& token, std::string_view as) {
  if (as.empty()) return;
  begins_[static_cast<uint8_t>(as[0])] = true;
  trie_.insert(as, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
}

void TokenFinder::split(
    std::string_view text,
    const std::function<void(Range, const AddedToken*)>& found) const {
  size_t done = 0;  // the end of the last part
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    const AddedToken* token = nullptr;
    if (begins_[static_cast<uint8_t>(text[at])]) {
      const auto longer = [&](size_t n, int32_t i) {
        length = n, token = &tokens_[static_cast<size_t>(i)];
      };
      Effort::take(trie_.prefixes(text.substr(at), longer), "added_tokens");
    }
    if (!token) {
      at++;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->single_word &&
        ((begin > 0 && is_word(text, before(text, begin))) ||
         (end < text.size() && is_word(text, end))))
      continue;
    while (token->lstrip && begin > done) {
      size_t c = before(text, begin);
      const size_t space = c;
      if (!is_white_space(next_char(text, c))) break;
      begin = space;
    }
    while (token->rstrip && end < text.size()) {
      size_t c = end;
      if (!is_white_space(next_char(text, c))) break;
      end = c;
    }
    if (done < begin) found({done, begin}, nullptr);
    found({begin, end}, token);
    done = end;
  }
  if (done < text.size()) found({done, text.size()}, nullptr);
}

}  // namespace dtensor::nn::text
