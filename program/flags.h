// SPDX-License-Identifier: Apache-2.0
// The flags of a program: the command line, and the text of --help.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtensor {

// The meaning of a text, which --help shows as TEXT, FILE or DIR.
enum class TextKind : uint8_t { kText, kFile, kFolder };

// Every add() with a `value` declares a flag "--name" that sets *value; the
// current *value is the default. Errors name the flag and say what to write.
class Flags {
 public:
  struct Flag {
    std::string name, help, type, shown;  // shown: the default; "": none
    bool repeats = false;                 // otherwise, the last use counts
    int values = 1;                       // per use; 0: a switch
    bool optional_value = false;
    std::function<void(const std::string&)> set;
    std::vector<std::string> given;  // the values on the command line
  };

  void add(std::string_view name, int64_t* value, std::string_view help,
           int64_t min, int64_t max);
  void add(std::string_view name, double* value, std::string_view help,
           double min, double max = std::numeric_limits<double>::infinity());
  // Accepts any text except the empty one.
  void add(std::string_view name, std::string* value, std::string_view help,
           TextKind);
  // Accepts one of `choices`.
  void add(std::string_view name, std::string* value, std::string_view help,
           std::vector<std::string> choices);
  // The flag may be given several times; the values replace *values. Accepts
  // any text if there are no `choices`.
  void add(std::string_view name, std::vector<std::string>* values,
           std::string_view help, std::vector<std::string> choices = {});
  void add(std::string_view name, std::vector<int64_t>* values,
           std::string_view help, int64_t min, int64_t max);
  void add(std::string_view name, bool* value, std::string_view help);
  // Accepts words that belong to no flag, such as files; --help shows them as
  // `type`, such as FILE... Without this call, such a word is an error.
  void add_words(std::vector<std::string>* words, std::string_view help,
                 std::string_view type);
  // Adds a flag of any other kind. The caller sets Flag::set, and any other
  // members. The reference stays valid as long as this object lives.
  Flag& add(std::string_view name, std::string_view help,
            std::string_view type);

  // Parses the command line and sets the values, in the order of the add()s.
  // Sets nothing if --help (or -h) or --version is given. Throws Error if the
  // command line is wrong.
  enum class Asked : uint8_t { kRun, kHelp, kVersion };
  Asked parse(int argc, char** argv);
  std::string help(std::string_view program, std::string_view about) const;
  // The given flags and their values, in the order of the add()s: "" for a
  // switch, "a, b" for a flag that repeats; then the words, under the `type` of
  // add_words().
  std::vector<std::pair<std::string, std::string>> all_given() const;
  // All flags, in the order of the add()s.
  const std::vector<std::unique_ptr<Flag>>& all() const { return flags_; }
  // Whether the command line has the flag; false if there is no such flag.
  bool given(std::string_view name) const;

 private:
  Flag* find(std::string_view name) const;
  [[noreturn]] void unexpected(const std::string& word) const;

  std::vector<std::unique_ptr<Flag>> flags_;
  std::vector<std::string>* words_ = nullptr;
  std::string words_help_, words_type_;
};

// The list as one text: "a, b, c".
std::string joined(const std::vector<std::string>& list);
// The text with its newlines replaced by spaces, for an error.
std::string one_line(std::string text);

}  // namespace dtensor
