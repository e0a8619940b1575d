// SPDX-License-Identifier: Apache-2.0
// Chat templates and tokenizer.json files that would crash the process, fill
// its memory or never end. Each gives an Error in one sentence, or a text.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dtensor/interrupt.h"
#include "dtensor/nn/text/chat_template.h"
#include "dtensor/nn/text/tokenizer.h"
#include "jinja/budget.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;
using nlohmann::json;
using nlohmann::ordered_json;

std::string repeated(const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i++) text += unit;
  return text;
}

// `inner` within `count` pairs of `open` and `close`.
std::string within(const std::string& open, const std::string& inner,
                   const std::string& close, size_t count) {
  return repeated(open, count) + inner + repeated(close, count);
}

// Returns the error of fn(), or its result. Expects that it takes no more time
// than templates may take, and no more memory than several of their budgets.
template <class Fn>
std::string outcome(const Fn& fn) {
  const auto seconds = [] {
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    EXPECT_LT(u.ru_maxrss, 2 << 20) << "kB";
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec);
  };
  const double start = seconds();
  std::string result;
  const std::string error = error_of([&] { result = fn(); });
  EXPECT_LT(seconds() - start, 60);
  EXPECT_LT(error.size(), 3000u);
  EXPECT_EQ(error.find('\n'), error.npos) << error;
  return error == "no error" ? result : error;
}

// Messages of a conversation, each with its number.
ordered_json conversation(size_t count) {
  ordered_json all = ordered_json::array();
  for (size_t i = 0; i < count; i++)
    all.push_back({{"role", i % 2 ? "assistant" : "user"},
                   {"content", std::to_string(i)}});
  return all;
}

std::string rendered(const std::string& source, size_t messages = 2) {
  return outcome(
      [&] { return ChatTemplate(source).apply(conversation(messages)); });
}

struct Case {
  std::string name, source;
};

void expect_all(const std::vector<Case>& cases, const std::string& part) {
  for (const auto& [name, source] : cases) {
    SCOPED_TRACE(name);
    const std::string text = rendered(source);
    EXPECT_EQ(text.substr(0, 16), "[chat_template] ") << text;
    EXPECT_NE(text.find(part), text.npos) << text;
  }
}

TEST(HostileTemplates, NestNoDeeperThanTheStack) {
  constexpr size_t kMany = 20'000;
  expect_all(
      {{"parentheses", "{{ " + within("(", "1", ")", kMany) + " }}"},
       {"lists", "{{ " + within("[", "", "]", kMany) + " }}"},
       {"objects", "{{ " + within("{1:", "1", "}", kMany) + " }}"},
       {"not", "{{ " + repeated("not ", kMany) + "true }}"},
       {"signs", "{{ " + repeated("-", kMany) + "x }}"},
       {"sums", "{{ 1" + repeated("+1", kMany) + " }}"},
       {"products", "{{ 1" + repeated("*1", kMany) + " }}"},
       {"comparisons", "{{ 1" + repeated("<1", kMany) + " }}"},
       {"and", "{{ 1" + repeated(" and 1", kMany) + " }}"},
       {"or", "{{ 1" + repeated(" or 1", kMany) + " }}"},
       {"texts", "{{ ''" + repeated("~''", kMany) + " }}"},
       {"filters", "{{ ''" + repeated("|trim", kMany) + " }}"},
       {"members", "{{ x" + repeated(".y", kMany) + " }}"},
       {"indices", "{{ x" + repeated("[0]", kMany) + " }}"},
       {"nested indices", "{{ " + within("x[", "0", "]", kMany) + " }}"},
       {"calls", "{{ x" + repeated("()", kMany) + " }}"},
       {"arguments", "{{ " + within("x(", "", ")", kMany) + " }}"},
       {"conditions", "{{ " + repeated("1 if 1 else ", kMany) + "1 }}"},
       {"if", within("{% if 1 %}", "", "{% endif %}", kMany / 2)},
       {"elif", "{% if 1 %}" + repeated("{% elif 1 %}", kMany) + "{% endif %}"},
       {"for", within("{% for x in y %}", "", "{% endfor %}", kMany / 2)},
       {"macro", within("{% macro x() %}", "", "{% endmacro %}", kMany / 2)},
       {"set", within("{% set x %}", "", "{% endset %}", kMany / 2)},
       {"filter",
        within("{% filter trim %}", "", "{% endfilter %}", kMany / 2)},
       {"call", within("{% call x() %}", "", "{% endcall %}", kMany / 2)}},
      "more than 200 deep");
  const std::string itself = "{% set a = [] %}{% set b = a.append(a) %}";
  const std::string names =
      "{% set n = namespace() %}{% set n.x = [n] %}{% set n.y = 1 %}";
  expect_all(
      {{"a macro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
       {"two macros",
        "{% macro f(n) %}{{ g(n) }}{% endmacro %}"
        "{% macro g(n) %}{% if n %}{{ f(n + 1) }}{% endif %}{% endmacro %}"
        "{{ f(1) }}"},
       {"a macro with many calls",
        "{% macro f() %}{% for x in [1, 2] %}{{ f() ~ f() }}{% endfor %}"
        "{% endmacro %}{{ f() }}"},
       {"a caller",
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}"
        "{% endmacro %}{{ f() }}"},
       {"a list in itself", itself + "{{ a }}"},
       {"its text", itself + "{{ a | string }}"},
       {"its JSON", itself + "{{ a | tojson }}"},
       {"its sum with a text", itself + "{{ a ~ '' }}"},
       {"a namespace in itself", names + "{{ n ~ '' }}"},
       {"its JSON with an indent", names + "{{ n | tojson(indent=2) }}"},
       {"objects in each other",
        "{% set a = namespace() %}{% set b = namespace(a=a) %}"
        "{% set a.b = b %}{{ b | string }}"},
       {"tuples as keys",
        "{% set n = namespace(t=(1, 2)) %}{% for i in range(600) %}"
        "{% set n.t = (n.t, 1) %}{% endfor %}{{ {n.t: 1} }}"},
       {"tuples to compare",
        "{% set n = namespace(t=(1, 2)) %}{% for i in range(600) %}"
        "{% set n.t = (n.t, 1) %}{% endfor %}{{ n.t == n.t }}"}},
      "more than 500 deep");
}

TEST(HostileTemplates, MakeNoMoreThanTheirBudget) {
  const std::string twice =
      "{% set n = namespace(x=[1]) %}{% for i in range(64) %}"
      "{% set n.x = [n.x, n.x] %}{% endfor %}";
  expect_all(
      {{"a range", "{{ range(4000000000) | length }}"},
       {"a range to the last number",
        "{{ range(0, 9223372036854775807, 3) | list }}"},
       {"repeated", "{{ 'ab' * 3000000000 }}"},
       {"repeated on the left", "{{ 9223372036854775807 * 'ab' }}"},
       {"doubled",
        "{% set n = namespace(x='ab') %}{% for i in range(50) %}"
        "{% set n.x = n.x ~ n.x %}{% endfor %}"},
       {"replaced", "{{ ('a' * 9000) | replace('a', 'b' * 9000) }}"},
       {"replaced between", "{{ ('a' * 9000).replace('', 'b' * 9000) }}"},
       {"indented", "{{ '1\\n2' | indent(9000000000) }}"},
       {"many lines indented",
        "{{ ('\\n' * 9000) | indent('b' * 9000, blank=true) }}"},
       {"joined", "{{ range(9000) | join('b' * 9000) }}"},
       {"JSON indented", "{{ [[1]] | tojson(indent=2000000000) }}"},
       {"JSON separated",
        "{{ (range(9000) | list) | tojson(separators=('b' * 9000, '')) }}"},
       {"characters",
        "{% for i in range(99) %}{{ ('a' * 100000)[-1] }}{% endfor %}"},
       {"copied",
        "{% set x = 'a' * 1000000 %}{% for i in range(99) %}"
        "{{ x | upper | length }}{% endfor %}"},
       {"shared and printed", twice + "{{ n.x | string }}"},
       {"shared and written", twice + "{{ n.x }}"},
       {"a sum of texts, of 40 MB", "{% set x = 'a' * 20000000 %}ok"}},
      "bytes of values for these messages");
  EXPECT_EQ(rendered("{% set x = 'a' * 15000000 %}ok"), "ok");
  expect_all(
      {{"a list doubled",
        "{% set n = namespace(x=[1]) %}{% for i in range(50) %}"
        "{% set n.x = n.x + n.x %}{% endfor %}"},
       {"shared, as JSON", twice + "{{ n.x | tojson }}"},
       {"shared and compared",
        "{% set n = namespace(x=(1, 2)) %}{% for i in range(64) %}"
        "{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x == n.x }}"},
       {"looked for in a list",
        "{% set x = range(50000) | list %}{% for i in range(50) %}"
        "{{ -1 in x }}{% endfor %}"},
       {"looked for in a text", "{{ ('a' * 900000 + 'b') in 'a' * 1900000 }}"},
       {"taken from the front",
        "{% set x = range(60000) | list %}{% for i in range(9000) %}"
        "{% set y = x.pop(0) %}{% endfor %}"}},
      "steps for these messages");
  // Each round of the outer loop copies all variables.
  std::string variables;
  for (int i = 0; i < 3000; i++)
    variables += fmt::format("{{% set v{} = 1 %}}", i);
  expect_all({{"variables", variables + "{% for i in range(3000) %}"
                                        "{% for j in [1] if j %}{% endfor %}"
                                        "{% endfor %}"}},
             "for these messages");
}

TEST(HostileTemplates, AreRefusedInSentences) {
  const auto has = [](const std::string& source, const std::string& part) {
    const std::string text = rendered(source);
    EXPECT_EQ(text.substr(0, 16), "[chat_template] ") << source << text;
    EXPECT_NE(text.find(part), text.npos) << source << text;
  };
  has(repeated(" ", (512 << 10) + 1),
      "the template has 524289 bytes, but this library reads at most 524288");
  EXPECT_EQ(rendered(repeated("\r\n", 256 << 10)).size(), (256u << 10) - 1);
  has("{{ 4 is divisibleby(0) }}", "must not be zero");
  has("{{ 1 | 2 }}", "Unexpected IntegerLiteral");
  has("{{ 1 is 2 }}", "Unexpected IntegerLiteral");
  has("{{ x(1=2) }}", "Unexpected IntegerLiteral");
  has("{% for 1 in x %}{% endfor %}", "Unexpected IntegerLiteral");
  has("{% macro 1() %}{% endmacro %}", "Unexpected IntegerLiteral");
  has("{{ raise_exception('x' * 100000) }}", "xxx...");
  has("{% set a = [] %}{% set b = a.append(y=a) %}{{ {a[0]: 1} }}",
      "unhashable type");
  has("\xff{{ raise_exception('\xfe') }}", "\uFFFD");
}

TEST(HostileTemplates, ThatAreOnlyOddGiveATextAndFreeIt) {
  EXPECT_EQ(rendered("{{ -9223372036854775807 is divisibleby(-1) }}"), "True");
  EXPECT_EQ(rendered("{{ 'abc'[::9223372036854775807] }}"), "a");
  EXPECT_EQ(rendered("{{ range(9223372036854775805, 9223372036854775807, "
                     "9223372036854775807) | length }}"),
            "1");
  EXPECT_EQ(rendered("{{ '' * 9000000000 }}"), "");
  EXPECT_EQ(rendered("{{ '1\n2' | indent(-5) }}"), "1\n2");
  EXPECT_EQ(rendered("{{ ('a' + 'bC') | capitalize }}"), "Abc");
  // The order contradicts itself: no number is less than NaN, nor more.
  EXPECT_EQ(rendered("{% set x = [] %}{% for i in range(99) %}"
                     "{% set y = x.append(0.0 * i / 0 if i % 3 else 9 - i) %}"
                     "{% endfor %}{{ x | sort | length }}"),
            "99");
  EXPECT_EQ(rendered("{% set n = namespace(x=['10', 9, 10, '9', none, 1]) %}"
                     "{% for i in range(6) %}{% set n.x = n.x + n.x %}"
                     "{% endfor %}{{ n.x | sort | length }}"),
            "384");
  EXPECT_EQ(rendered("{% set c = 'b' * 3000000 ~ 'a' %}"
                     "{{ ('a' * 3000000).strip(c) | length }}"),
            "0");
  // The list holds only itself.
  EXPECT_EQ(rendered("{% set a = [] %}{% set b = a.append(a) %}{{ a|length }}"),
            "1");
  EXPECT_EQ(rendered("{% set n = namespace() %}{% set n.x = {'n': n} %}ok"),
            "ok");
  // If each list freed the one within it by recursion, the stack would
  // overflow.
  EXPECT_EQ(rendered("{% set n = namespace(x=[]) %}{% for i in range(60000) %}"
                     "{% set n.x = [n.x] %}{% endfor %}ok",
                     2000),
            "ok");
}

TEST(HostileTemplates, EndAtTheirTime) {
  const jinja::budget b({.depth = 9,
                         .steps = size_t{1} << 62,
                         .bytes = 9,
                         .seconds = 0.05,
                         .stopped = nullptr});
  const auto steps = [] {
    for (;;) jinja::budget::step();
  };
  EXPECT_THROW(steps(), jinja::budget_exceeded);
}

TEST(HostileTemplates, LeaveTheNextRequestAlone) {
  const ChatTemplate t(
      "{% if messages | length > 2 %}{{ 'a' * 3000000000 }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(t.apply(conversation(2)), "01");
  EXPECT_NE(error_of([&] { t.apply(conversation(3)); }), "no error");
  EXPECT_EQ(t.apply(conversation(2)), "01");
}

// Budgets grow with the messages.
TEST(HostileTemplates, RenderLongConversations) {
  constexpr size_t kCount = 3000;
  std::string wanted;
  for (size_t i = 0; i < kCount; i++)
    wanted += fmt::format("<{}>{}{}\n", i % 2 ? "assistant" : "user", i,
                          i + 1 == kCount ? "" : ",");
  EXPECT_EQ(rendered("{% for m in messages %}"
                     "{% set text = messages[loop.index0].content | trim %}"
                     "{{ '<' + m['role'] + '>' + text.split('x')[-1] }}"
                     "{% if not loop.last and messages | length > 1 %},"
                     "{% endif %}{{ '\n' }}{% endfor %}",
                     kCount),
            wanted);
}

TEST(HostileTemplates, EndWhenTheProgramDoes) {
  const ChatTemplate t("{% for i in range(100) %}{{ i }}{% endfor %}");
  const auto text = [&] {
    return outcome([&] { return t.apply(ordered_json::array()); });
  };
  EXPECT_EQ(text().size(), 190u);
  interrupt_internal::signal = SIGTERM;
  const std::string error = text();
  interrupt_internal::signal = 0;
  EXPECT_NE(error.find("the program was told to end"), error.npos) << error;
}

// ---- Tokenizers ----

// A tokenizer of single bytes, with `members` added or replaced.
json file_with(const json& members) {
  json vocabulary = {{"<unk>", 0}};
  for (char c = ' '; c < '~'; c++)
    vocabulary.emplace(std::string(1, c), vocabulary.size());
  json file = {{"model",
                {{"type", "BPE"},
                 {"unk_token", "<unk>"},
                 {"vocab", vocabulary},
                 {"merges", json::array()}}}};
  file.update(members);
  return file;
}

// The outcome of reading this file, and of encoding and decoding a text.
std::string round_trip(const std::string& file, const std::string& text) {
  const std::string dir = ::testing::TempDir() + "/hostile";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/tokenizer.json", std::ios::binary) << file;
  return outcome([&] {
    const auto t = Tokenizer::from_pretrained(dir);
    return t.decode(t.encode(text));
  });
}

// A text of words, with a long one at the end.
const std::string kText = repeated("aaaaaaaaaaaaaaaaaaaaaaaaaaaa! ", 500) +
                          repeated("a", 10'000) + "!";

void expect_refused(const std::string& name, const std::string& file,
                    const std::string& part, const std::string& text = kText) {
  SCOPED_TRACE(name);
  const std::string error = round_trip(file, text);
  EXPECT_EQ(error.substr(0, 12), "[tokenizer] ") << error.substr(0, 1000);
  EXPECT_NE(error.find("tokenizer.json"), error.npos) << error.substr(0, 1000);
  EXPECT_NE(error.find(part), error.npos) << error.substr(0, 1000);
}

void expect_refused(const std::string& name, const json& members,
                    const std::string& part, const std::string& text = kText) {
  expect_refused(name, file_with(members).dump(), part, text);
}

json sequence(const char* list, const json& step, size_t count) {
  return {{"type", "Sequence"}, {list, json(count, step)}};
}

json replace(const json& pattern, const std::string& by) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", by}};
}

json split(const std::string& regex) {
  return {{"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", regex}}},
            {"behavior", "Isolated"},
            {"invert", false}}}};
}

TEST(HostileTokenizers, EndAtTheirTime) {
  // PCRE2's limit does not count alternatives that fail, and a lookahead reads
  // the rest of the text at each place.
  expect_refused(
      "lookaheads", split("[^0](?:" + repeated("(?=.*+[xy])|", 600) + "(?!))"),
      "pre_tokenizer.pattern takes longer than 1 s", repeated("a", 8'000));
  // A template may name one token, of many ids, many times.
  expect_refused(
      "ids of a template",
      {{"post_processor",
        {{"type", "TemplateProcessing"},
         {"single",
          [] {
            json all(3000, json{{"SpecialToken", {{"id", "X"}}}});
            all.push_back({{"Sequence", {{"id", "A"}}}});
            return all;
          }()},
         {"special_tokens", {{"X", {{"id", "X"}, {"ids", json(3000, 1)}}}}}}}},
      "makes more than ");
  // A prefix as long as the text.
  json prefixed = file_with(json::object());
  prefixed["model"]["continuing_subword_prefix"] = repeated("a", 100'000);
  expect_refused("a long prefix", prefixed.dump(), "takes more than ");
}

// Matches are found far from the beginning, behind characters of several bytes.
TEST(HostileTokenizers, PatternsAreFoundFarFromTheBeginning) {
  for (const char* filler : {"a", "\u00e9", "\u20ac", "\U0001f600"})
    for (const size_t count : {0, 1, 16, 21, 32, 63, 64, 65, 300}) {
      const std::string before = repeated(filler, count);
      json file = file_with(
          {{"normalizer", replace({{"Regex", "(?<=[^b]|^)bb+$"}}, "x")},
           {"decoder", {{"type", "Fuse"}}}});
      file["model"]["unk_token"] = nullptr;
      EXPECT_EQ(round_trip(file.dump(), before + "bbb"),
                (filler[1] ? "" : before) + "x")
          << filler << count;
    }
}

TEST(HostileTokenizers, NestNoDeeperThanTheStack) {
  const auto nested = [](const char* member, const std::string& list) {
    std::string file = file_with({{member, "HERE"}}).dump();
    return file.replace(
        file.find("\"HERE\""), 6,
        within(R"({"type":"Sequence",")" + list + "\":[", "", "]}", 100'000));
  };
  const std::string deep = "nests lists and objects more than 64 deep";
  expect_refused("normalizer", nested("normalizer", "normalizers"), deep);
  expect_refused("pre-tokenizer", nested("pre_tokenizer", "pretokenizers"),
                 deep);
  expect_refused("post-processor", nested("post_processor", "processors"),
                 deep);
  expect_refused("decoder", nested("decoder", "decoders"), deep);
  expect_refused("lists", repeated("[", 1'000'000), deep);
  expect_refused("objects", repeated("{\"a\":", 1'000'000), deep);
  // The file's object is the first level.
  const auto deep_member = [](size_t levels) {
    const std::string list = within("[", "", "]", levels);
    return file_with({{"other", json::parse(list)}}).dump();
  };
  EXPECT_EQ(round_trip(deep_member(63), "ab"), "a b");
  expect_refused("one level too many", deep_member(64), deep);
  // Brackets in texts do not nest.
  EXPECT_EQ(round_trip(file_with({{"decoder", {{"type", "Fuse"}}},
                                  {"other", "\\\"" + repeated("[{", 99)}})
                           .dump(),
                       "ab"),
            "ab");
  const json nfc = {{"type", "NFC"}};
  EXPECT_EQ(
      round_trip(file_with({{"decoder", {{"type", "Fuse"}}},
                            {"normalizer", sequence("normalizers", nfc, 64)}})
                     .dump(),
                 "ab"),
      "ab");
  expect_refused("steps", {{"normalizer", sequence("normalizers", nfc, 65)}},
                 "normalizer.normalizers[64] comes after 64 steps");
  expect_refused(
      "steps of a pre-tokenizer",
      {{"pre_tokenizer",
        sequence("pretokenizers", {{"type", "WhitespaceSplit"}}, 65)}},
      "pre_tokenizer.pretokenizers[64] comes after 64 steps");
  expect_refused("steps of a decoder",
                 {{"decoder", sequence("decoders", {{"type", "Fuse"}}, 65)}},
                 "decoder.decoders[64] comes after 64 steps");
}

TEST(HostileTokenizers, WriteNoMoreThanTheirBudget) {
  const std::string much = repeated("b", 20'000);
  const json ten = replace({{"String", "a"}}, "aaaaaaaaaa");
  const auto normalizer = [](const json& step, size_t count) {
    return json{{"normalizer", sequence("normalizers", step, count)}};
  };
  expect_refused("Replace", normalizer(ten, 12), "makes more than");
  expect_refused("one Replace", normalizer(replace({{"String", "a"}}, much), 1),
                 "normalizers[0].pattern makes more than");
  expect_refused("Replace of nothing",
                 normalizer(replace({{"Regex", ""}}, "b"), 60),
                 "makes more than");
  expect_refused("Prepend",
                 normalizer({{"type", "Prepend"}, {"prepend", much}}, 9),
                 "normalizer makes more than", "a!");
  expect_refused("bytes as characters",
                 {{"pre_tokenizer", sequence("pretokenizers",
                                             {{"type", "ByteLevel"},
                                              {"add_prefix_space", false},
                                              {"use_regex", false}},
                                             40)}},
                 "pre_tokenizer makes more than", "\u00e9\u00e9");
  expect_refused("decoder", {{"decoder", sequence("decoders", ten, 12)}},
                 "decoder");
  json fused = {{"type", "Fuse"}};
  json last = {{"type", "Sequence"}, {"decoders", {fused, ten, ten, ten, ten}}};
  expect_refused("decoder of the whole text", {{"decoder", last}},
                 "makes more than");
}

TEST(HostileTokenizers, TakeNoMoreStepsThanTheirBudget) {
  for (const char* regex :
       {"(a+)+$", "(a|aa)+$", "((a*)*)*[cd]", "(a*)(a*)(a*)(a*)(a*)[xyz]",
        "(?:a?){60}a{60}[xyz]", "([a-z]+)*[0-9]", "(?:a+a+)+[xyz]"})
    expect_refused(regex, split(regex),
                   "pre_tokenizer.pattern takes more than");
  expect_refused("recursion", split("(?R)"), "pre_tokenizer.pattern fails on");
  expect_refused("a long pattern", split(repeated("a", 8193)),
                 "pre_tokenizer.pattern has 8193 bytes, but a pattern has at "
                 "most 8192; use a shorter one");
  expect_refused("groups", split(repeated("(a?)", 257)),
                 "pre_tokenizer.pattern has 257 groups");
  expect_refused("a pattern that grows",
                 split("((((a{1,999}){1,999}){1,999}))"),
                 "which PCRE2 does not read");
  json text = split("a");
  text["pre_tokenizer"]["pattern"] = {{"String", repeated("a", 8193)}};
  expect_refused("a long text", text, "has 8193 bytes");
  const auto model = [](const json& m) { return json{{"model", m}}; };
  json scores = json::array({json::array({"<unk>", 0.0})});
  json pieces = {{"<unk>", 0}};
  const std::string run = repeated("a", 20'000);
  for (size_t i = 1; i < 3000; i++) {
    scores.push_back({repeated("a", i), -1.0});
    pieces.emplace(i == 1 ? "a" : "##" + repeated("a", i) + "c", i);
  }
  pieces.emplace("##a", 3000);
  expect_refused("unigram",
                 model({{"type", "Unigram"}, {"unk_id", 0}, {"vocab", scores}}),
                 "model takes more than", run);
  expect_refused("WordPiece",
                 model({{"type", "WordPiece"},
                        {"unk_token", "<unk>"},
                        {"max_input_chars_per_word", 1'000'000'000'000},
                        {"vocab", pieces}}),
                 "model takes more than", run);
  // An added token nearly begins at each of the text's characters.
  const std::string error = round_trip(
      file_with({{"added_tokens",
                  {{{"id", 1000}, {"content", repeated("a", 9999) + "c"}}}}})
          .dump(),
      run);
  EXPECT_EQ(error.substr(0, 40), "[tokenizer] added_tokens takes more than");
}

TEST(HostileTokenizers, GiveIdsThatFitInMemory) {
  const auto with_id = [](int64_t id) {
    json file = file_with(json::object());
    file["model"]["vocab"]["zz"] = id;
    return file;
  };
  const std::string range = ", but ids are from 0 to below 2^22; use another";
  for (const int64_t id :
       {int64_t{-1}, int64_t{1} << 22, int64_t{1} << 30, INT64_MAX})
    expect_refused(std::to_string(id), with_id(id), range);
  EXPECT_EQ(round_trip(with_id((1 << 22) - 1).dump(), "a"), "a");
  expect_refused("twice", with_id(5), "gives the id 5 to");
  expect_refused(
      "added",
      {{"added_tokens", {{{"id", int64_t{1} << 40}, {"content", "zz"}}}}},
      range);
  const auto template_with = [](int64_t id) {
    return json{
        {"post_processor",
         {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", "X"}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"pair", json::array()},
          {"special_tokens", {{"X", {{"ids", {id}}}}}}}}};
  };
  expect_refused("post-processor", template_with(-5),
                 "post_processor.special_tokens.X.ids[0] is -5");
  expect_refused("post-processor, far", template_with(int64_t{1} << 50),
                 "an id from 0 to below 2^22");
  EXPECT_EQ(round_trip(file_with(template_with(36)).dump(), "a"), "C a");
}

// Errors are short, however long the text is that they show.
TEST(HostileTokenizers, AreRefusedInShortSentences) {
  const std::string much = repeated("\u00e9", 500'000);
  expect_refused("a member", {{"normalizer", {{"type", "NFC"}, {"x", much}}}},
                 "normalizer.x is \"\u00e9");
  expect_refused("a type", {{"normalizer", {{"type", much}}}},
                 "normalizer.type is \"\u00e9");
  json file = file_with(json::object());
  file["model"]["merges"] = {much};
  expect_refused("a merge", file, "model.merges[0] is \"\u00e9");
  expect_refused("text that is not JSON", "{\"" + much,
                 "cannot be read as JSON");
  json model = {{"type", "Unigram"}, {"vocab", {{much}}}};
  expect_refused("a score", {{"model", model}}, "model.vocab[0] is [\"\u00e9");
}

}  // namespace
}  // namespace dtensor::nn
