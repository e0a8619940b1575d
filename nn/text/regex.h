// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer.json, by PCRE2.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dtensor::nn::text {

// The part of a text from `begin` to before `end`, in bytes.
struct Range {
  size_t begin, end;
};

// The characters of words, for use inside [...]. They are those of Rust's
// regular expressions, which `tokenizers` uses in some steps instead of
// Oniguruma's.
inline constexpr std::string_view kRustWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

// A compiled pattern. Any number of threads may use it.
class Regex {
 public:
  // A pattern in the syntax of Oniguruma, which Hugging Face's tokenizers use.
  // \s, \w and \b mean Unicode's properties, as in Oniguruma. Throws Error,
  // beginning with `where`, for a pattern that PCRE2 does not read, for nested
  // classes, the option m and escapes such as \h, which PCRE2 reads otherwise,
  // and for a pattern with more than 8,192 bytes or more than 256 groups.
  Regex(std::string_view pattern, const std::string& where);

  // A pattern that matches exactly this text, of at most 8,192 bytes.
  static Regex literal(std::string_view text, const std::string& where);

  // Calls found(match) for each match in order. A match may be empty, but not
  // where the one before it ends. The text is valid UTF-8. The work counts
  // towards the limits of the thread's Effort (effort.h).
  template <class Found>
  void each(std::string_view text, const Found& found) const {
    size_t from = 0, last = ~size_t{0};
    while (const auto match = find(text, from)) {
      if (match->begin == match->end && match->end == last) {
        from = after_char(text, from);
      } else {
        found(*match);
        from = last = match->end;
      }
    }
  }

  bool matches(std::string_view text) const {
    return find(text, 0).has_value();
  }

  // The text with each match replaced by `by`. The work and the inserted bytes
  // count towards the limits of the thread's Effort (effort.h).
  std::string replace(std::string_view text, std::string_view by) const;

 private:
  struct Code;
  // The first match that begins at `from` or later.
  std::optional<Range> find(std::string_view text, size_t from) const;
  static size_t after_char(std::string_view text, size_t at);

  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace dtensor::nn::text
