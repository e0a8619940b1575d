// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/flags.h"

#include <gtest/gtest.h>

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct Values {
  int64_t n = 3;
  double x = 0.5;
  std::string text, path, folder, choice = "a";
  std::vector<std::string> list, some{"a", "b"};
  std::vector<int64_t> sizes{1, 2};
  bool on = false;
};

void add_all(Flags& flags, Values& v) {
  flags.add("--n", &v.n, "of things", 1, 9);
  flags.add("--x", &v.x, "a number", 0, 2);
  flags.add("--text", &v.text, "of the profile in this folder",
            TextKind::kText);
  flags.add("--path", &v.path, "to read", TextKind::kFile);
  flags.add("--folder", &v.folder, "to write into", TextKind::kFolder);
  flags.add("--choice", &v.choice, "one of two", {"a", "b"});
  flags.add("--list", &v.list, "several");
  flags.add("--some", &v.some, "some of three", {"a", "b", "c"});
  flags.add("--sizes", &v.sizes, "of things", 1, 9);
  flags.add("--on", &v.on, "a switch");
}

struct Parsed {
  Values values;
  Flags flags;
  Flags::Asked asked;
  std::string error;
  explicit Parsed(std::vector<std::string> args) {
    add_all(flags, values);
    args.insert(args.begin(), "program");
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    try {
      asked = flags.parse(static_cast<int>(args.size()), argv.data());
    } catch (const Error& e) {
      error = e.what();
    }
  }
};

// The line of the help text about a flag.
std::string line_of(const std::string& help, const std::string& flag) {
  const size_t at = help.find("  " + flag + " ");
  return at == help.npos ? "" : help.substr(at, help.find('\n', at) - at);
}

// Kinds of values are declared. A text whose help mentions a profile or a
// folder is not taken for a path.
TEST(Flags, HelpCallsATextWhatItStandsFor) {
  const Parsed p({});
  const std::string help = p.flags.help("program", "About it.");
  EXPECT_EQ(help.find("usage: program [flags]\n\nAbout it.\n"), 0u) << help;
  EXPECT_NE(line_of(help, "--text").find("--text TEXT"), help.npos) << help;
  EXPECT_NE(line_of(help, "--path").find("--path FILE"), help.npos) << help;
  EXPECT_NE(line_of(help, "--folder").find("--folder DIR"), help.npos) << help;
  EXPECT_NE(line_of(help, "--choice").find("--choice a|b"), help.npos) << help;
  EXPECT_NE(line_of(help, "--n").find("(default 3)"), help.npos) << help;
  EXPECT_NE(line_of(help, "--some").find("--some a|b|c"), help.npos) << help;
  EXPECT_NE(line_of(help, "--some").find("(default a, b)"), help.npos) << help;
  EXPECT_NE(line_of(help, "--sizes").find("(default 1, 2)"), help.npos) << help;
  EXPECT_NE(line_of(help, "--version"), "") << help;
  EXPECT_NE(line_of(help, "--help"), "") << help;
}

TEST(Flags, HelpShowsADefaultThatIsALimit) {
  for (const bool most : {false, true}) {
    Values v;
    v.n = most ? 9 : 1;
    v.x = most ? 2 : 0;
    Flags flags;
    add_all(flags, v);
    const std::string help = flags.help("program", "");
    const std::string n = most ? "(default 9)" : "(default 1)",
                      x = most ? "(default 2)" : "(default 0)";
    EXPECT_NE(line_of(help, "--n").find(n), help.npos) << help;
    EXPECT_NE(line_of(help, "--x").find(x), help.npos) << help;
  }
}

TEST(Flags, SetsWhatIsGivenAndNothingElse) {
  const Parsed p({"--n", "4", "--n=5", "--list", "p", "--list", "q", "--on"});
  EXPECT_EQ(p.error, "");
  EXPECT_EQ(p.asked, Flags::Asked::kRun);
  EXPECT_EQ(p.values.n, 5);  // the last one counts
  EXPECT_EQ(p.values.x, 0.5);
  EXPECT_EQ(p.values.list, (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(p.values.some, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(p.values.sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(p.values.on);
  EXPECT_TRUE(p.flags.given("--n"));
  EXPECT_TRUE(p.flags.given("--on"));
  EXPECT_FALSE(p.flags.given("--x"));
  EXPECT_FALSE(p.flags.given("--none"));
}

TEST(Flags, ValuesOfAFlagThatRepeatsReplaceTheDefault) {
  const Parsed p({"--some", "c", "--some", "a", "--sizes=9", "--sizes", "1"});
  EXPECT_EQ(p.error, "");
  EXPECT_EQ(p.values.some, (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(p.values.sizes, (std::vector<int64_t>{9, 1}));
}

TEST(Flags, HelpAndVersionSetNothing) {
  for (const char* help : {"-h", "--help"}) {
    const Parsed p({"--n", "100", help, "--nonsense"});
    EXPECT_EQ(p.asked, Flags::Asked::kHelp);
    EXPECT_EQ(p.values.n, 3);
  }
  const Parsed p({"--version", "--n", "4"});
  EXPECT_EQ(p.asked, Flags::Asked::kVersion);
  EXPECT_EQ(p.values.n, 3);
}

TEST(Flags, LimitsThemselvesAreAllowed) {
  EXPECT_EQ(Parsed({"--n", "1"}).values.n, 1);
  EXPECT_EQ(Parsed({"--n", "9"}).values.n, 9);
  EXPECT_EQ(Parsed({"--x", "0"}).values.x, 0);
  EXPECT_EQ(Parsed({"--x", "2"}).values.x, 2);
  EXPECT_EQ(Parsed({"--x", "-0.5"}).error,
            "[--x] -0.5 is too small; write a number from 0 to 2");
}

TEST(Flags, ErrorsSayWhatToWrite) {
  const auto error = [](std::vector<std::string> args) {
    return Parsed(std::move(args)).error;
  };
  EXPECT_EQ(error({"--n", "0"}),
            "[--n] 0 is too small; write a whole number from 1 to 9");
  EXPECT_EQ(error({"--n", "10"}),
            "[--n] 10 is too large; write a whole number from 1 to 9");
  EXPECT_EQ(error({"--n", "x"}),
            "[--n] 'x' cannot be read as a whole number; write digits alone, "
            "like --n 4");
  EXPECT_EQ(error({"--n", "99999999999999999999"}),
            "[--n] 99999999999999999999 does not fit into 64 bits; write "
            "another number, like --n 4");
  EXPECT_EQ(error({"--x", "2.5"}),
            "[--x] 2.5 is too large; write a number from 0 to 2");
  EXPECT_EQ(error({"--some", "a", "--some", "d"}),
            "[--some] there is no 'd'; write one of a, b, c");
  EXPECT_EQ(error({"--sizes", "10"}),
            "[--sizes] 10 is too large; write a whole number from 1 to 9");
  EXPECT_EQ(error({"--x", "nan"}),
            "[--x] nan is not finite; write a finite number");
  EXPECT_EQ(error({"--path", ""}),
            "[--path] the text is empty; write --path FILE");
  EXPECT_EQ(error({"--choice", "c"}),
            "[--choice] there is no 'c'; write one of a, b");
  EXPECT_EQ(error({"--lits", "c"}),
            "[flags] there is no flag --lits; did you mean --list?");
  EXPECT_EQ(error({"word"}),
            "[flags] 'word' belongs to no flag; --help lists the flags");
  EXPECT_EQ(error({"--folder"}),
            "[--folder] a value is missing; write --folder DIR");
  EXPECT_EQ(error({"--on=false"}),
            "[--on] it takes no value, and 'false' is given; write --on, or "
            "leave it out");
  EXPECT_EQ(error({"--on=true"}), "");
  EXPECT_EQ(one_line("a\nb\n"), "a b ");
}

// Words without a flag may stand anywhere. A word that looks like a flag is a
// flag.
TEST(Flags, TakesWordsWhereThereMayBeAny) {
  const auto parsed = [](std::vector<std::string> args) {
    Flags flags;
    bool on = false;
    std::vector<std::string> words;
    flags.add("--on", &on, "a switch");
    flags.add_words(&words, "to read", "FILE...");
    args.insert(args.begin(), "program");
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    try {
      flags.parse(static_cast<int>(args.size()), argv.data());
    } catch (const Error& e) {
      return std::vector<std::string>{e.what()};
    }
    words.push_back(on ? "on" : "off");
    return words;
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(parsed({}), Words{"off"});
  EXPECT_EQ(parsed({"a", "--on", "b"}), (Words{"a", "b", "on"}));
  EXPECT_EQ(parsed({"a", "--no"}),
            Words{"[flags] there is no flag --no; did you mean --on?"});
  Flags flags;
  Words words;
  flags.add_words(&words, "to read", "FILE...");
  const std::string help = flags.help("program", "");
  EXPECT_EQ(help.find("usage: program [flags] FILE...\n"), 0u) << help;
  EXPECT_NE(line_of(help, "FILE...").find("to read"), help.npos) << help;
}

}  // namespace
}  // namespace dtensor
