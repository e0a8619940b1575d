// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "dtensor/nn/text/regex.h"

#include <pcre2.h>

#include "dtensor/nn/text/effort.h"
#include "dtensor/nn/text/field.h"
#include "dtensor/nn/text/unicode.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn::text {
namespace {

constexpr size_t kMostBytes = 8192;
constexpr uint32_t kMostGroups = 256;
// PCRE2 counts tries: how often a match goes back and tries something else.
// Words of good patterns take fewer than kFirstTries tries, and these do not
// count. After that, the limit grows eightfold at a time, and each try counts
// as several steps of an Effort, since a try may read many characters. PCRE2
// does not count a lookahead that fails. Therefore a search goes through
// windows of kStarts bytes in which a match may begin, and the time is checked
// after each window without a match.
constexpr size_t kStarts = 64;
constexpr uint32_t kFirstTries = 128;
constexpr uint32_t kMostTries = kFirstTries << 21;
constexpr uint64_t kStepsOfTry = 16;
constexpr uint32_t kMostHeap = 65536;  // KiB

// Word characters of Oniguruma: Unicode's and, below U+0100, six numerals.
// PCRE2's word characters lack marks.
constexpr std::string_view kWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// Translates an escape of Oniguruma to PCRE2. Throws Error for one that is not
// supported. Returns all others unchanged.
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
               "{} has \\W in [...], which is not supported; omit it", where);
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
      fail("tokenizer", "{} has the unsupported \\{}; omit it", where, c);
    default:
      return {'\\', c};
  }
}

// The property in braces as PCRE2 has to read it. In Oniguruma, {Han} means the
// characters of the script. In PCRE2, it also means other characters that Han
// texts may use; {sc:Han} leaves them out. `name` is returned if it is not a
// script.
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
    // The options of a group, such as (?i:...).
    if (!in_class && pattern.substr(i, 2) == "(?") {
      const size_t end = pattern.find_first_of(":)-<=!>&|'#~", i + 2);
      DT_CHECK(pattern.substr(i, end - i).find('m') == pattern.npos,
               "tokenizer",
               "{} is {}, whose option m lets . match line feeds in Oniguruma, "
               "but not in PCRE2; write [\\s\\S] for such a .",
               where, shortened(pattern));
    }
    const bool posix = pattern.substr(i, 2) == "[:";
    DT_CHECK(!in_class || posix || (c != '[' && pattern.substr(i, 2) != "&&"),
             "tokenizer",
             "{} is {}, whose && or nested class is not supported; omit it",
             where, shortened(pattern));
    if (in_class && posix) {
      const size_t end = pattern.find(":]", i);
      DT_CHECK(end != pattern.npos, "tokenizer",
               "{} is {}, which has [: without :]; write a class such as "
               "[:alpha:], or omit the [, since nested classes are not "
               "supported",
               where, shortened(pattern));
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

std::string message_of(int error) {
  char message[256] = "";
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message),
                          sizeof message);
  return message;
}

// The memory and the limits of the matches of one thread.
class Matcher {
 public:
  Matcher() {
    pcre2_set_heap_limit(limits, kMostHeap);
    pcre2_set_match_limit(limits, kFirstTries);
  }
  ~Matcher() {
    pcre2_match_context_free(limits);
    pcre2_match_data_free(data);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Calls match(), each time with a higher limit, until the limit suffices or
  // is kMostTries. Returns the last result of match().
  template <class Match>
  int match_harder(const Match& match, const std::string& where) {
    int found = PCRE2_ERROR_MATCHLIMIT;
    uint32_t tries = kFirstTries;
    while (found == PCRE2_ERROR_MATCHLIMIT && tries < kMostTries) {
      tries *= 8;
      Effort::take(kStepsOfTry * tries, where);
      pcre2_set_match_limit(limits, tries);
      found = match();
      pcre2_set_match_limit(limits, kFirstTries);
    }
    return found;
  }

  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* const limits = pcre2_match_context_create(nullptr);
};

pcre2_code* compiled(std::string_view pattern, uint32_t options,
                     std::string_view shown, const std::string& where) {
  DT_CHECK(shown.size() <= kMostBytes, "tokenizer",
           "{} has {} bytes, but a pattern has at most {}; use a shorter one",
           where, shown.size(), kMostBytes);
  int error = 0;
  size_t at = 0;
  pcre2_code* code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      options | PCRE2_USE_OFFSET_LIMIT, &error, &at, nullptr);
  if (!code) {
    fail("tokenizer",
         "{} is {}, which PCRE2 does not read: {}; write it in syntax that "
         "Oniguruma and PCRE2 share",
         where, shortened(shown), message_of(error));
  }
  uint32_t groups = 0;
  pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &groups);
  if (groups > kMostGroups) {
    pcre2_code_free(code);
    fail("tokenizer",
         "{} has {} groups, but a pattern has at most {}; use fewer", where,
         groups, kMostGroups);
  }
  // Without a compiler for this processor, PCRE2 interprets the pattern.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

struct Regex::Code {
  Code(pcre2_code* c, std::string place) : code(c), where(std::move(place)) {}
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code;
  std::string where;
};

Regex::Regex(std::string_view pattern, const std::string& where)
    // Oniguruma's ^ and $ match at each line.
    : code_(std::make_shared<Code>(
          compiled(translated(pattern, where),
                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, pattern, where),
          where)) {}

Regex Regex::literal(std::string_view text, const std::string& where) {
  return Regex(std::make_shared<Code>(
      compiled(text, PCRE2_UTF | PCRE2_LITERAL, text, where), where));
}

std::optional<Range> Regex::find(std::string_view text, size_t from) const {
  if (from > text.size()) return std::nullopt;
  thread_local Matcher matcher;
  size_t begin = from;
  const auto match = [&] {
    const auto with = [&](uint32_t options) {
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                         text.size(), begin, PCRE2_NO_UTF_CHECK | options,
                         matcher.data, matcher.limits);
    };
    const int found = with(0);
    // Compiled code has a small stack. If that is too small, PCRE2's
    // interpreter does the match: its stack is on the heap.
    return found == PCRE2_ERROR_JIT_STACKLIMIT ? with(PCRE2_NO_JIT) : found;
  };
  int found = 0;
  for (size_t last = 0;; begin = after_char(text, last)) {
    last = std::min(begin + kStarts, text.size());
    while (last < text.size() && (text[last] & 0xC0) == 0x80) ++last;
    pcre2_set_offset_limit(matcher.limits, last);
    found = match();
    if (found == PCRE2_ERROR_MATCHLIMIT) [[unlikely]]
      found = matcher.match_harder(match, code_->where);
    if (found != PCRE2_ERROR_NOMATCH) break;
    if (last == text.size()) return std::nullopt;
    Effort::check_time(code_->where);
  }
  DT_CHECK(found >= 0, "tokenizer",
           "{} fails on a text of {}: {}; simplify the pattern", code_->where,
           quantity(std::ssize(text), "byte", "bytes"), message_of(found));
  const size_t* ends = pcre2_get_ovector_pointer(matcher.data);
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
    Effort::write(by.size(), code_->where);
    result += text.substr(at, match.begin - at);
    result += by;
    at = match.end;
  });
  result += text.substr(at);
  return result;
}

}  // namespace dtensor::nn::text
