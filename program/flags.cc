// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "dtensor/placement/error.h"
#include "dtensor/text_table.h"

namespace dtensor {
namespace {

// Parses `text`. The error for a text that is not a number shows `example`.
template <class T>
T parse_number(const std::string& flag, const std::string& text, T example) {
  T x{};
  const char* end = text.data() + text.size();
  auto [p, ec] = std::from_chars(text.data(), end, x);
  constexpr bool whole = std::is_integral_v<T>;
  DT_CHECK(ec != std::errc::result_out_of_range, flag,
           "{} does not fit into 64 bits; write another number, like {} {}",
           text, flag, example);
  DT_CHECK(ec == std::errc() && p == end, flag,
           "'{}' cannot be read as a {}, like {} {}", text,
           whole ? "whole number; write digits alone" : "number; write one",
           flag, example);
  if constexpr (!whole)
    DT_CHECK(std::isfinite(x), flag, "{} is not finite; write a finite number",
             text);
  return x;
}

template <class T>
T number_between(const std::string& flag, const std::string& text, T example,
                 T min, T max) {
  using Limits = std::numeric_limits<T>;
  const T x = parse_number(flag, text, std::clamp(example, min, max));
  DT_CHECK(x >= min && x <= max, flag, "{} is too {}; write a {} {}", text,
           x < min ? "small" : "large",
           Limits::is_integer ? "whole number" : "number",
           max == (Limits::is_integer ? Limits::max() : Limits::infinity())
               ? fmt::format("of at least {}", min)
               : fmt::format("from {} to {}", min, max));
  return x;
}
int64_t whole_in(const std::string& flag, const std::string& text, int64_t min,
                 int64_t max) {
  return number_between<int64_t>(flag, text, 4, min, max);
}

void check_choice(const std::string& flag, const std::string& text,
                  const std::vector<std::string>& choices) {
  DT_CHECK(std::count(choices.begin(), choices.end(), text) == 1, flag,
           "there is no '{}'; write one of {}", text, joined(choices));
}

// The edit distance of a and b.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min(
          {row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string_view to_string(TextKind kind) {
  switch (kind) {
    case TextKind::kFile:
      return "FILE";
    case TextKind::kFolder:
      return "DIR";
    default:
      return "TEXT";
  }
}

}  // namespace

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& s : list) text += (text.empty() ? "" : ", ") + s;
  return text;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Flags::Flag& Flags::add(std::string_view name, std::string_view help,
                        std::string_view type) {
  auto f = std::make_unique<Flag>();
  f->name = name;
  f->help = help;
  f->type = type;
  flags_.push_back(std::move(f));
  return *flags_.back();
}

void Flags::add(std::string_view name, int64_t* value, std::string_view help,
                int64_t min, int64_t max) {
  Flag& f = add(name, help, "N");
  if (*value >= min && *value <= max) f.shown = std::to_string(*value);
  f.set = [flag = f.name, value, min, max](const std::string& text) {
    *value = whole_in(flag, text, min, max);
  };
}

void Flags::add(std::string_view name, double* value, std::string_view help,
                double min, double max) {
  Flag& f = add(name, help, "X");
  if (*value >= min && *value <= max) f.shown = fmt::format("{:g}", *value);
  f.set = [flag = f.name, value, min, max](const std::string& text) {
    *value = number_between(flag, text, 0.001, min, max);
  };
}

void Flags::add(std::string_view name, std::string* value,
                std::string_view help, TextKind kind) {
  Flag& f = add(name, help, to_string(kind));
  f.shown = *value;
  f.set = [flag = f.name, type = f.type, value](const std::string& text) {
    DT_CHECK(!text.empty(), flag, "the text is empty; write {} {}", flag, type);
    *value = text;
  };
}

void Flags::add(std::string_view name, std::string* value,
                std::string_view help, std::vector<std::string> choices) {
  Flag& f = add(name, help, fmt::to_string(fmt::join(choices, "|")));
  f.shown = *value;
  f.set = [flag = f.name, value, choices](const std::string& text) {
    check_choice(flag, text, choices);
    *value = text;
  };
}

void Flags::add(std::string_view name, std::vector<std::string>* values,
                std::string_view help, std::vector<std::string> choices) {
  const bool any = choices.empty();
  Flag& f =
      add(name, help, any ? "TEXT" : fmt::to_string(fmt::join(choices, "|")));
  f.repeats = true;
  f.shown = joined(*values);
  f.set = [=, flag = f.name, first = true](const std::string& text) mutable {
    if (!any) check_choice(flag, text, choices);
    if (std::exchange(first, false)) values->clear();
    values->push_back(text);
  };
}

void Flags::add(std::string_view name, std::vector<int64_t>* values,
                std::string_view help, int64_t min, int64_t max) {
  Flag& f = add(name, help, "N");
  f.repeats = true;
  f.shown = fmt::to_string(fmt::join(*values, ", "));
  f.set = [=, flag = f.name, first = true](const std::string& text) mutable {
    const int64_t x = whole_in(flag, text, min, max);
    if (std::exchange(first, false)) values->clear();
    values->push_back(x);
  };
}

void Flags::add(std::string_view name, bool* value, std::string_view help) {
  Flag& f = add(name, help, "");
  f.values = 0;
  f.set = [value](const std::string&) { *value = true; };
}

void Flags::add_words(std::vector<std::string>* words, std::string_view help,
                      std::string_view type) {
  words_ = words;
  words_help_ = help;
  words_type_ = type;
}

Flags::Flag* Flags::find(std::string_view name) const {
  for (const auto& f : flags_)
    if (f->name == name) return f.get();
  return nullptr;
}

bool Flags::given(std::string_view name) const {
  const Flag* f = find(name);
  return f && !f->given.empty();
}

std::vector<std::pair<std::string, std::string>> Flags::all_given() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& f : flags_)
    if (!f->given.empty()) all.emplace_back(f->name, joined(f->given));
  if (words_ && !words_->empty())
    all.emplace_back(words_type_, joined(*words_));
  return all;
}

std::string Flags::help(std::string_view program,
                        std::string_view about) const {
  std::string text = fmt::format("usage: {} [flags]{}{}\n", program,
                                 words_ ? " " : "", words_type_);
  if (!about.empty()) text += fmt::format("\n{}\n", about);
  TextTable table("ll", {"flags:", ""});
  if (words_) table.add({"  " + words_type_, words_help_});
  for (const auto& f : flags_) {
    std::string left = "  " + f->name;
    if (!f->type.empty())
      left += f->optional_value ? " [" + f->type + "]" : " " + f->type;
    std::string right = f->help;
    if (!f->shown.empty()) right += " (default " + f->shown + ")";
    table.add({left, right});
  }
  table.add({"  --version", "print the version of the library"});
  table.add({"  --help", "print this text"});
  return text + table.to_string();
}

void Flags::unexpected(const std::string& word) const {
  if (word.empty() || word[0] != '-')
    fail("flags", "'{}' belongs to no flag; --help lists the flags", word);
  const std::string flag = word.substr(0, word.find('='));
  const Flag* nearest = nullptr;
  for (const auto& f : flags_)
    if (!nearest || distance(flag, f->name) < distance(flag, nearest->name))
      nearest = f.get();
  if (nearest && distance(flag, nearest->name) <= 2)
    fail("flags", "there is no flag {}; did you mean {}?", flag, nearest->name);
  fail("flags", "there is no flag {}; --help lists the flags", flag);
}

Flags::Asked Flags::parse(int argc, char** argv) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  bool wants_help = false, wants_version = false;
  app.add_flag("-h,--help", wants_help);
  app.add_flag("--version", wants_version);
  std::vector<CLI::Option*> options;
  for (const auto& f : flags_) {
    CLI::Option* option = app.add_option(f->name, f->given);
    option->allow_extra_args(false);
    if (f->values == 0)
      option->expected(0);
    else if (f->optional_value)
      option->expected(0, 1);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options.push_back(option);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch&) {
    std::string last = argv[argc - 1];
    last.erase(std::min(last.find('='), last.size()));
    fail(last, "a value is missing; write {} {}", last,
         find(last) ? find(last)->type : "VALUE");
  } catch (const CLI::ParseError& e) {
    fail("flags", "{}; --help lists the flags", one_line(e.what()));
  }
  if (wants_help) return Asked::kHelp;
  if (wants_version) return Asked::kVersion;
  for (const std::string& word : app.remaining()) {
    if (!words_ || word.empty() || word[0] == '-') unexpected(word);
    words_->push_back(word);
  }
  for (size_t i = 0; i < flags_.size(); ++i) {
    Flag& f = *flags_[i];
    if (options[i]->count() == 0) continue;
    if (f.values == 0)  // CLI11 gives it the value "true"
      for (const std::string& text : f.given)
        DT_CHECK(text == "true", f.name,
                 "it takes no value, and '{}' is given; write {}, or leave it "
                 "out",
                 text, f.name);
    if (f.values == 0 || f.given.empty()) f.given = {""};
    // If the flag is given several times, its last value counts.
    if (!f.repeats) f.given = {f.given.back()};
    for (const std::string& text : f.given) f.set(text);
  }
  return Asked::kRun;
}

}  // namespace dtensor
