// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/text/charsmap.h"

#include <cstring>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/unicode.h"

namespace dtensor::nn::text {
namespace {

std::string from_base64(const Field& f) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : f.text()) {
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) f.refuse("base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count);
  }
  return bytes;
}

}  // namespace

Charsmap::Charsmap(const Field& f) : place_(f.place()) {
  const std::string bytes = from_base64(f);
  uint32_t size = 0;
  if (bytes.size() >= sizeof size)
    std::memcpy(&size, bytes.data(), sizeof size);
  if (size < sizeof(uint32_t) || size % sizeof(uint32_t) != 0 ||
      size + sizeof size > bytes.size())
    f.refuse("the charsmap of SentencePiece");
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes.data() + sizeof size, size);
  texts_ = bytes.substr(sizeof size + size);
}

const char* Charsmap::find(std::string_view key) const {
  const auto offset = [](uint32_t unit) {
    return (unit >> 10) << ((unit & (1u << 9)) >> 6);
  };
  const auto at = [&](uint32_t i) { return i < trie_.size() ? trie_[i] : 0; };
  uint32_t node = offset(at(0));
  for (char c : key) {
    const uint32_t byte = static_cast<uint8_t>(c);
    node ^= byte;
    const uint32_t unit = at(node);
    if (byte == 0 || (unit & (1u << 31 | 0xFF)) != byte) return nullptr;
    node ^= offset(unit);
    if ((unit >> 8 & 1) == 0) continue;
    const uint32_t text = at(node) & ~(1u << 31);
    return text < texts_.size() ? texts_.c_str() + text : nullptr;
  }
  return nullptr;
}

std::string Charsmap::apply(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  const auto add = [&](std::string_view by) {
    Effort::write(by.size(), place_);
    result += by;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = grapheme_end(text, at);
    const std::string_view grapheme = text.substr(at, end - at);
    const char* whole = grapheme.size() < 6 ? find(grapheme) : nullptr;
    if (whole) {
      add(whole);
      at = end;
    }
    while (at < end) {
      const size_t begin = at;
      next_char(text, at);
      const std::string_view one = text.substr(begin, at - begin);
      if (const char* by = find(one)) {
        add(by);
      } else {
        result += one;
      }
    }
  }
  return result;
}

}  // namespace dtensor::nn::text
