// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>

#include "dtensor/placement/error.h"
#include "dtensor/placement/rule.h"

namespace dtensor {

// Reads the grammar in rule.h.
class RuleParser {
 public:
  explicit RuleParser(std::string_view text) : text_(text) {}

  Rule parse() {
    size_t bar = text_.find('|');
    std::string_view body = text_.substr(0, bar);
    size_t arrow = body.find("->");
    if (arrow == body.npos) bad("has no '->'");
    terms(body.substr(0, arrow), rule_.in_);
    terms(body.substr(arrow + 2), rule_.out_);
    for (size_t f = 0; f < rule_.factors_.size(); ++f)
      rule_.factors_[f].contracted = !in_outputs(static_cast<int>(f));
    if (bar != text_.npos) notes(text_.substr(bar + 1));
    return std::move(rule_);
  }

 private:
  [[noreturn]] void bad(std::string_view what) {
    fail("rule", "'{}' {}; see the grammar in dtensor/placement/rule.h", text_,
         what);
  }

  bool in_outputs(int f) const {
    for (const Rule::Term& t : rule_.out_)
      for (const Rule::DimFactors& d : t)
        if (std::find(d.begin(), d.end(), f) != d.end()) return true;
    return false;
  }

  int factor(char c) {
    if (!std::isalpha(static_cast<unsigned char>(c)))
      bad(fmt::format("has '{}' where a letter belongs", c));
    int f = rule_.factor(c);
    if (f >= 0) return f;
    rule_.factors_.push_back({c});
    return static_cast<int>(rule_.factors_.size()) - 1;
  }

  void terms(std::string_view s, std::vector<Rule::Term>& out) {
    for (;;) {
      size_t comma = s.find(',');
      out.push_back(term(s.substr(0, comma)));
      if (comma == s.npos) return;
      s.remove_prefix(comma + 1);
    }
  }

  Rule::Term term(std::string_view s) {
    Rule::Term t;
    seen_.clear();
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] == ' ') continue;
      if (s[i] == '.') {
        if (s.substr(i, 3) != "...") bad("has a '.' that is not '...'");
        once(Rule::kEllipsis, "'...'");
        t.push_back({Rule::kEllipsis});
        i += 2;
      } else if (s[i] == '1') {
        t.push_back({});
      } else if (s[i] == '(') {
        t.push_back({});
        for (++i; i < s.size() && s[i] != ')'; ++i) {
          if (s[i] == ' ') continue;
          if (t.back().size() == FactorList::kMost)
            bad(fmt::format("has a dimension of more than {} factors",
                            FactorList::kMost));
          t.back().push_back(marked(s, i));
        }
        if (i == s.size()) bad("has a '(' without ')'");
      } else {
        t.push_back({marked(s, i)});
      }
    }
    return t;
  }

  int marked(std::string_view s, size_t& i) {
    int f = factor(s[i]);
    once(f, fmt::format("'{}'", s[i]));
    constexpr std::string_view kMarks = "!~^";
    if (i + 1 < s.size() && kMarks.find(s[i + 1]) != kMarks.npos) {
      ++i;
      Factor& mark = rule_.factors_[static_cast<size_t>(f)];
      (s[i] == '!'   ? mark.pinned
       : s[i] == '~' ? mark.inside
                     : mark.one_range) = true;
      if (mark.pinned && mark.inside)
        bad(fmt::format("marks '{}' with both '!' and '~'", s[i - 1]));
    }
    return f;
  }

  void once(int f, std::string_view what) {
    if (std::find(seen_.begin(), seen_.end(), f) != seen_.end())
      bad(fmt::format("has {} twice in one term", what));
    seen_.push_back(f);
  }

  // The factor with this letter. Throws Error if no term has it.
  int known(char c) {
    int f = rule_.factor(c);
    if (f < 0)
      bad(fmt::format("names '{}' in a note, but has no such factor", c));
    return f;
  }

  void notes(std::string_view s) {
    for (;;) {
      size_t end = s.find(';');
      note(s.substr(0, end));
      if (end == s.npos) return;
      s.remove_prefix(end + 1);
    }
  }

  void note(std::string_view s) {
    while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
    while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
    if (s.size() > 2 && s[1] == ':') {
      for (int k = 0; k <= static_cast<int>(ReduceOp::kMean); ++k)
        if (name(static_cast<ReduceOp>(k)) == s.substr(2)) {
          rule_.factors_[static_cast<size_t>(known(s[0]))].reduction =
              static_cast<ReduceOp>(k);
          return;
        }
      bad(fmt::format("names an unknown reduction in '{}'", s));
    }
    size_t space = s.find(' ');
    if (space == s.npos) bad(fmt::format("has the incomplete note '{}'", s));
    std::string_view word = s.substr(0, space), rest = s.substr(space + 1);
    if (word == "link") {
      if (rest.size() != 3 || rest[1] != ' ')
        bad("has a 'link' that is not followed by two letters, as in 'link h "
            "g'");
      rule_.links_.push_back({known(rest[0]), known(rest[2])});
      return;
    }
    for (int k = 0; k < kNumLinearities; ++k) {
      const auto kind = static_cast<Linearity>(k);
      if (name(kind) != word) continue;
      rule_.notes_.push_back({kind, inputs(rest)});
      return;
    }
    bad(fmt::format("has the unknown note '{}'", s));
  }

  // Reads "0,1": numbers of inputs, none of them twice.
  std::vector<int> inputs(std::string_view s) {
    std::vector<int> list;
    for (;;) {
      const std::string_view item = s.substr(0, s.find(','));
      int i = -1;
      const auto [end, error] =
          std::from_chars(item.data(), item.data() + item.size(), i);
      if (error != std::errc() || end != item.data() + item.size() || i < 0 ||
          i >= static_cast<int>(rule_.in_.size()))
        bad(fmt::format("has no input '{}'", item));
      if (std::find(list.begin(), list.end(), i) != list.end())
        bad(fmt::format("names input {} twice in one note", i));
      list.push_back(i);
      if (item.size() == s.size()) return list;
      s.remove_prefix(item.size() + 1);
    }
  }

  std::string_view text_;
  Rule rule_;
  std::vector<int> seen_;  // factors of the term being read
};

Rule::Rule(std::string_view text) { *this = RuleParser(text).parse(); }

}  // namespace dtensor
