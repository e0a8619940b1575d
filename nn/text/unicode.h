// SPDX-License-Identifier: Apache-2.0
// UTF-8, and the properties of characters that tokenizers ask for.
#pragma once
#include <string>
#include <string_view>

namespace dtensor::nn::text {

// Returns the character that begins at `at`, and moves `at` behind the
// character. The text is valid UTF-8.
char32_t next_char(std::string_view text, size_t& at);

void append(std::string& text, char32_t c);

// The number of leading bytes that later bytes cannot change: all, or all but a
// character that is cut off at the end.
size_t decided_bytes(std::string_view bytes);

// The bytes as UTF-8. Each maximal part that is not UTF-8 becomes one U+FFFD,
// as in Rust's from_utf8_lossy and Python's errors="replace".
std::string valid_utf8(std::string_view bytes);

// Calls change(c, result) for each character and returns the result.
template <class Change>
std::string mapped(std::string_view text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) change(next_char(text, at), result);
  return result;
}

bool is_white_space(char32_t);
bool is_other(char32_t);            // control, format, or for private use
bool is_mark(char32_t);             // category M
bool is_nonspacing_mark(char32_t);  // category Mn

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
std::string normal_form(std::string_view text, Form);

// Lower-cases each character without regard to its neighbours: a sigma at the
// end of a word is no exception.
std::string lowercase(std::string_view text);

// The end of the grapheme cluster (a letter with its marks, an emoji with its
// joiners) that begins at `at`.
size_t grapheme_end(std::string_view text, size_t at);

}  // namespace dtensor::nn::text
