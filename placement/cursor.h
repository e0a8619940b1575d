// SPDX-License-Identifier: Apache-2.0
// Reads the words of a layout's text.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/placement/error.h"

namespace dtensor {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// A position in a text. Every read first skips spaces.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  char peek() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong("'" + std::string(1, c) + "'");
  }
  bool at_number() { return is_digit(peek()) || peek() == '-'; }
  bool at_name() { return is_letter(peek()); }

  int64_t number() {
    if (!at_number()) wrong("a number");
    const char *first = text_.data() + at_, *end = text_.data() + text_.size();
    int64_t x = 0;
    auto [p, ec] = std::from_chars(first, end, x);
    if (ec == std::errc::invalid_argument) wrong("a number");
    at_ += static_cast<size_t>(p - first);
    DT_CHECK(ec == std::errc(), "layout",
             "{} in '{}' does not fit into 64 bits; write a number from 0 to "
             "2^63 - 1",
             std::string_view(first, static_cast<size_t>(p - first)), text_);
    return x;
  }
  // Reads a name: letters, digits and _, not starting with a digit. If there is
  // none, throws Error, which calls the missing part `what`.
  std::string_view name(std::string_view what) {
    if (!at_name()) wrong(what);
    return word([](char c) { return is_letter(c) || is_digit(c); });
  }
  // Reads up to a space, or to a character that can follow the name of a mesh
  // axis.
  std::string_view axis_name() {
    peek();
    auto t = word([](char c) {
      return !is_space(c) &&
             std::string_view(",:{}()[]").find(c) == std::string_view::npos;
    });
    if (t.empty()) wrong("the name of a mesh axis");
    return t;
  }

  std::string_view text() const { return text_; }
  size_t at() const { return at_; }
  std::string_view since(size_t from) const {
    return text_.substr(from, at_ - from);
  }
  [[noreturn]] void wrong(std::string_view wanted) {
    if (peek() == '\0')
      fail("layout", "'{}' ends where {} should follow", text_, wanted);
    fail("layout", "in '{}' there is '{}' where {} should be", text_,
         text_.substr(at_), wanted);
  }

 private:
  template <class Belongs>
  std::string_view word(Belongs belongs) {
    size_t from = at_;
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    return since(from);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace dtensor
