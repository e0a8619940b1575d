// The flags of a program: what is on the command line, and --help.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtensor {

// What a text stands for, as --help shows it: TEXT, FILE, DIR.
enum class TextKind : uint8_t { kText, kFile, kFolder };

// Every add() names a flag as "--name", and what it sets: what that holds is
// the default. Errors are sentences with the flag and what to write instead.
class Flags {
 public:
  struct Flag {
    std::string name, help, type, shown;  // shown: the default, "" for none
    bool repeats = false;                 // else the last one counts
    int values = 1;                       // per use; 0: a switch
    bool optional_value = false;
    std::function<void(const std::string&)> set;
    std::vector<std::string> given;  // as on the command line
  };

  void add(std::string_view name, int64_t* value, std::string_view help,
           int64_t min, int64_t max);
  void add(std::string_view name, double* value, std::string_view help,
           double min);
  // Any text but an empty one.
  void add(std::string_view name, std::string* value, std::string_view help,
           TextKind);
  // One of `choices`.
  void add(std::string_view name, std::string* value, std::string_view help,
           std::vector<std::string> choices);
  // One that may be given several times.
  void add(std::string_view name, std::vector<std::string>* values,
           std::string_view help);
  void add(std::string_view name, bool* value, std::string_view help);
  // What belongs to no flag: files, as `type`, FILE..., calls them in --help.
  // Without it such a word is an error.
  void add_words(std::vector<std::string>* words, std::string_view help,
                 std::string_view type);
  // Whatever else: the caller says the rest. Stays where it is.
  Flag& add(std::string_view name, std::string_view help,
            std::string_view type);

  // Sets what the flags of the command line name, in the order of the add()s;
  // nothing when --help (or -h) or --version is among them.
  enum class Asked : uint8_t { kRun, kHelp, kVersion };
  Asked parse(int argc, char** argv);
  std::string help(std::string_view program, std::string_view about) const;
  // What the command line gives, in the order of the add()s: of a switch "", of
  // a flag that repeats "a, b"; and the words, as add_words() calls them.
  std::vector<std::pair<std::string, std::string>> all_given() const;
  // Whether the command line has it; false for one that does not exist.
  bool given(std::string_view name) const;

 private:
  Flag* find(std::string_view name) const;
  [[noreturn]] void unexpected(const std::string& word) const;

  std::vector<std::unique_ptr<Flag>> flags_;
  std::vector<std::string>* words_ = nullptr;
  std::string words_help_, words_type_;
};

// "a, b, c".
std::string joined(const std::vector<std::string>& list);
// Text as one line, for an error.
std::string one_line(std::string text);

}  // namespace dtensor
