// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "dtensor/nn/text/regex.h"

#include <pcre2.h>

#include "dtensor/nn/text/unicode.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn::text {
namespace {

// Word characters of Oniguruma: Unicode's and, below U+0100, six numerals.
// Word characters of Oniguruma. The ones of PCRE2 lack marks.
constexpr std::string_view kWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// Translates an escape of Oniguruma to PCRE2; returns it if both agree.
std::string escape(char c, bool in_class, const std::string& where) {
  const std::string word = fmt::format("[{}]", kWord);
  switch (c) {
    case 's':
      return R"(\p{White_Space})";
    case 'S':
      return R"(\P{White_Space})";
    case 'w':
      return in_class ? std::string(kWord) : word;
    case 'W':
      DT_CHECK(!in_class, "tokenizer",
               "{} has \\W within [...], which is not supported", where);
      return fmt::format("[^{}]", kWord);
    case 'b':
      if (in_class) return R"(\x08)";
      return fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
    case 'h':
    case 'H':
    case 'R':
    case 'X':
    case 'K':
    case 'G':
      fail("tokenizer", "{} has \\{}, which is not supported", where, c);
    default:
      return {'\\', c};
  }
}

// \p{Han} with its characters, rather than those that Han texts may use too,
// which PCRE2 means by it.
std::string property(std::string_view name) {
  const std::string script =
      fmt::format(R"({{sc:{}}})", name.substr(1, name.size() - 2));
  const std::string pattern = "\\p" + script;
  int error = 0;
  size_t at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                    pattern.size(), PCRE2_UTF, &error, &at, nullptr);
  pcre2_code_free(code);
  return code ? script : std::string(name);
}

std::string translated(std::string_view pattern, const std::string& where) {
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); i++) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      result += escape(pattern[++i], in_class, where);
      const size_t end = pattern.find('}', i);
      if ((pattern[i] | 0x20) == 'p' && pattern.substr(i + 1, 1) == "{" &&
          end != pattern.npos) {
        result += property(pattern.substr(i + 1, end - i));
        i = end;
      }
      continue;
    }
    const bool posix = pattern.substr(i, 2) == "[:";
    DT_CHECK(!in_class || posix || (c != '[' && pattern.substr(i, 2) != "&&"),
             "tokenizer",
             "{} is {}, but a class within a class and && are not supported",
             where, pattern);
    if (in_class && posix) {
      const size_t end = pattern.find(":]", i);
      DT_CHECK(end != pattern.npos, "tokenizer", "{} has [: without :]", where);
      result += pattern.substr(i, end + 2 - i);
      i = end + 1;
      continue;
    }
    if (c == '[') {
      in_class = true;
      // A ] at the front of a class does not close it.
      const size_t skip = pattern.substr(i + 1, 1) == "^" ? 2 : 1;
      if (pattern.substr(i + skip, 1) == "]") {
        result += pattern.substr(i, skip);
        result += "\\]";
        i += skip;
        continue;
      }
    } else if (c == ']') {
      in_class = false;
    }
    result += c;
  }
  return result;
}

pcre2_code* compiled(std::string_view pattern, uint32_t options,
                     std::string_view shown, const std::string& where) {
  int error = 0;
  size_t at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                    pattern.size(), options, &error, &at, nullptr);
  if (!code) {
    char message[256];
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message),
                            sizeof message);
    fail("tokenizer", "{} is {}, which PCRE2 does not read: {}", where, shown,
         message);
  }
  // Without a compiler for this processor, PCRE2 interprets the pattern.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* c) : code(c) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code;
};

Regex::Regex(std::string_view pattern, const std::string& where)
    // Oniguruma's ^ and $ match at each line.
    : code_(std::make_shared<Code>(
          compiled(translated(pattern, where),
                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, pattern, where))) {}

Regex Regex::literal(std::string_view text) {
  return Regex(std::make_shared<Code>(
      compiled(text, PCRE2_UTF | PCRE2_LITERAL, text, "a text")));
}

std::optional<Range> Regex::find(std::string_view text, size_t from) const {
  thread_local const std::unique_ptr<pcre2_match_data,
                                     decltype(&pcre2_match_data_free)>
      data(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const auto match = [&](uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                       text.size(), from, PCRE2_NO_UTF_CHECK | options,
                       data.get(), nullptr);
  };
  if (from > text.size()) return std::nullopt;
  int found = match(0);
  // The compiled pattern's stack is small; the interpreter's is the heap.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  DT_CHECK(found >= 0, "tokenizer",
           "PCRE2 gave up on a text of {} bytes with error {}", text.size(),
           found);
  const size_t* ends = pcre2_get_ovector_pointer(data.get());
  return Range{ends[0], ends[1]};
}

size_t Regex::after_char(std::string_view text, size_t at) {
  if (at < text.size())
    next_char(text, at);
  else
    at++;
  return at;
}

std::string Regex::replace(std::string_view text, std::string_view by) const {
  std::string result;
  size_t at = 0;
  each(text, [&](Range match) {
    result += text.substr(at, match.begin - at);
    result += by;
    at = match.end;
  });
  result += text.substr(at);
  return result;
}

}  // namespace dtensor::nn::text
