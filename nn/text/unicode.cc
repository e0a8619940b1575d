// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "dtensor/placement/error.h"

namespace dtensor::nn::text {
namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

struct Sequence {
  size_t bytes;
  bool valid, cut;  // cut: more bytes could make it valid
};

// The longest sequence at the front of `bytes` that is a character or the
// beginning of one (table 3-7 of the Unicode standard); else the first byte.
Sequence first_sequence(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Overlong forms, surrogates and values over U+10FFFF show in the second
  // byte.
  uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < size; i++) {
    if (i == bytes.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80, high = 0xBF;
  }
  return {size, true, false};
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
}

}  // namespace

char32_t next_char(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<uint8_t>(text[at + i]));
  };
  const char32_t lead = byte(0);
  const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t c = size == 1 ? lead : lead & (0x7F >> size);
  for (size_t i = 1; i < size; i++) c = c << 6 | (byte(i) & 0x3F);
  at += size;
  return c;
}

void append(std::string& text, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

size_t decided_bytes(std::string_view bytes) {
  // A character that is cut off has at most three bytes, the first of them a
  // lead byte.
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); back++) {
    const std::string_view tail = bytes.substr(bytes.size() - back);
    if ((static_cast<uint8_t>(tail[0]) & 0xC0) == 0x80) continue;
    const Sequence s = first_sequence(tail);
    return s.cut && s.bytes == back ? bytes.size() - back : bytes.size();
  }
  return bytes.size();
}

std::string valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Sequence s = first_sequence(bytes);
    if (s.valid) {
      text += bytes.substr(0, s.bytes);
    } else {
      text += "\uFFFD";
    }
    bytes.remove_prefix(s.bytes);
  }
  return text;
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_other(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_CO;
}

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
         k == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

std::string normal_form(std::string_view text, Form form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == Form::kNfc || form == Form::kNfkc ? UTF8PROC_COMPOSE
                                                       : UTF8PROC_DECOMPOSE;
  if (form == Form::kNfkc || form == Form::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* result = nullptr;
  const auto size =
      utf8proc_map(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  DT_CHECK(size >= 0, "tokenizer",
           "utf8proc cannot normalise {} bytes: {}; pass less text",
           text.size(), utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(
      result, std::free);
  return {reinterpret_cast<const char*>(result), static_cast<size_t>(size)};
}

std::string lowercase(std::string_view text) {
  return mapped(text, [](char32_t c, std::string& result) {
    // The only character whose lower case is two characters.
    if (c == 0x130) {
      result += "i\u0307";
    } else if (c < 0x80) {
      result += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32)
                                     : static_cast<char>(c);
    } else {
      append(result, static_cast<char32_t>(
                         utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
}

size_t grapheme_end(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  auto before = static_cast<utf8proc_int32_t>(next_char(text, at));
  while (at < text.size()) {
    size_t behind = at;
    const auto c = static_cast<utf8proc_int32_t>(next_char(text, behind));
    if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
    before = c;
    at = behind;
  }
  return at;
}

}  // namespace dtensor::nn::text
