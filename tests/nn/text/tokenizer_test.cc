// SPDX-License-Identifier: Apache-2.0
// Compares ids and texts with those of Hugging Face's `tokenizers`, as
// tools/tokenizer_goldens.py has written them.
#include "dtensor/nn/text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using dtensor::testing::error_of;
using nlohmann::json;
using Ids = std::vector<int64_t>;

const std::string kData = "tests/nn/text/data/";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

json json_of(const std::string& path) { return json::parse(bytes_of(path)); }

// The lines of tools/tokenizer_goldens.py: fragments and characters that a
// linear congruential generator draws. The line's number is its first state.
class Lines {
 public:
  Lines() {
    const json data = json_of(kData + "lines.json");
    for (const json& group : data["groups"])
      groups_.push_back(group.get<std::vector<std::string>>());
    auto& broken = groups_.emplace_back();
    for (const std::string hex : data["broken"]) {
      std::string& bytes = broken.emplace_back();
      for (size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }

  std::string line(uint64_t state) const {
    const auto draw = [&](uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<size_t>((state >> 33) % below);
    };
    draw(2);
    std::string result;
    for (size_t left = 1 + draw(12); left > 0; left--) {
      const size_t group = draw(groups_.size() + 1);
      if (group < groups_.size()) {
        result += groups_[group][draw(groups_[group].size())];
      } else {
        size_t c = draw(0x1200);
        if (c >= 0x600) c += 0x1A00;
        if (c >= 0x800) result += static_cast<char>(0xE0 | c >> 12);
        if (c >= 0x80)
          result += static_cast<char>(c < 0x800 ? 0xC0 | c >> 6
                                                : 0x80 | (c >> 6 & 0x3F));
        result += static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3F));
      }
      const char* const spaces[] = {"", " ", " ", "  "};
      result += spaces[draw(4)];
    }
    return result;
  }

 private:
  std::vector<std::vector<std::string>> groups_;
};

uint32_t hash_of(std::string_view bytes) {  // FNV-1a
  uint32_t hash = 0x811C9DC5;
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193;
  return hash;
}

uint32_t hash_of(const Ids& ids) {
  std::string bytes;
  for (int64_t id : ids)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(id >> shift);
  return hash_of(bytes);
}

// Patches a value: an object's members replace the value's members or are added
// to them. An object with a type, or another value, replaces the value.
json patched(const json& value, const json& patch) {
  if (!patch.is_object() || !value.is_object() || patch.contains("type"))
    return patch;
  json result = value;
  for (const auto& [name, x] : patch.items())
    result[name] = patched(value.contains(name) ? value[name] : json(), x);
  return result;
}

// A folder with files of these names and contents.
std::string folder(const std::vector<std::pair<std::string, json>>& files) {
  static int count = 0;
  const std::string dir =
      fmt::format("{}/tokenizer{}", ::testing::TempDir(), count++);
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  for (const auto& [name, value] : files)
    std::ofstream(dir + "/" + name) << value.dump();
  return dir;
}

Tokenizer tokenizer_from(const json& file) {
  return Tokenizer::from_pretrained(folder({{"tokenizer.json", file}}));
}

Tokenizer tokenizer_of(const std::string& name, const json& patch = {}) {
  const json file = json_of(kData + name + ".json");
  return tokenizer_from(patch.is_null() ? file : patched(file, patch));
}

// A patch for a file, whose texts are then split by a pattern.
json split(const std::string& regex) {
  return {{"pre_tokenizer",
           {{"type", "Split"},
            {"pattern", {{"Regex", regex}}},
            {"behavior", "Isolated"},
            {"invert", false}}}};
}

std::string streamed(const Tokenizer& t, const Ids& ids,
                     DecodeOptions options = {}) {
  TextStream stream(t, options);
  std::string text;
  for (int64_t id : ids) {
    const std::string part = stream.push(id);
    // A part that is given out has no incomplete character.
    EXPECT_NO_THROW((void)json(part).dump()) << id;
    text += part;
  }
  return text + stream.finish();
}

class Case : public ::testing::TestWithParam<size_t> {};

TEST_P(Case, GivesTheIdsAndTextsOfHuggingFace) {
  const json all = json_of(kData + "cases.json");
  ASSERT_EQ(all.size(), 16u);
  const json& c = all[GetParam()];
  const std::string name = c["name"];
  SCOPED_TRACE(name);
  const std::string golden = bytes_of(kData + name + ".golden");
  const auto count = c["lines"].get<size_t>();
  ASSERT_EQ(golden.size(), 6 * count);
  const Tokenizer t = tokenizer_of(c["file"].get<std::string>(), c["patch"]);
  const Lines lines;
  int failures = 0;
  for (size_t n = 0; n < count && failures < 5; n++) {
    uint32_t ids_hash;
    uint16_t text_hash;
    std::memcpy(&ids_hash, &golden[6 * n], 4);
    std::memcpy(&text_hash, &golden[6 * n + 4], 2);
    const std::string line = lines.line(n);
    const Ids ids = t.encode(line);
    const std::string text = t.decode(ids);
    const auto shown = [&] {
      std::string tokens;
      for (int64_t id : ids) tokens += fmt::format(" {}={}", id, t.token(id));
      return fmt::format(
          "line {}: {}\ntokens:{}\ndecoded: {}\n`tools/tokenizer_goldens.py "
          "{} --line {}` prints the right ones",
          n, line, tokens, text, kData, n);
    };
    const bool equal = hash_of(ids) == ids_hash &&
                       (hash_of(text) & 0xFFFF) == text_hash &&
                       streamed(t, ids) == text;
    EXPECT_EQ(hash_of(ids), ids_hash) << shown();
    EXPECT_EQ(hash_of(text) & 0xFFFF, text_hash) << shown();
    EXPECT_EQ(streamed(t, ids), text) << shown();
    failures += !equal;
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Case, ::testing::Range<size_t>(0, 16));

TEST(TokenizerTest, StreamsRandomIdsAsItDecodesThem) {
  for (const char* name :
       {"byte_level", "sentencepiece_bpe", "unigram", "word_piece"}) {
    SCOPED_TRACE(name);
    const Tokenizer t = tokenizer_of(name);
    uint64_t state = 7;
    for (int n = 0; n < 300; n++) {
      Ids ids;
      while (ids.size() < 20) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto id = static_cast<int64_t>((state >> 33) % 400);
        ids.push_back(id);
      }
      for (const bool skip : {false, true})
        EXPECT_EQ(streamed(t, ids, {skip}), t.decode(ids, {skip}));
    }
  }
}

TEST(TokenizerTest, HoldsBackBytesOfACharacter) {
  const Tokenizer t = tokenizer_of("byte_level");
  const Ids ids = t.encode("\U000411ff!", {.add_special = false});
  ASSERT_EQ(ids.size(), 5u);  // four bytes and "!"
  TextStream stream(t);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids[3]), "\U000411ff");
  EXPECT_EQ(stream.push(ids[4]), "!");
  EXPECT_EQ(stream.push(ids[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(TokenizerTest, HoldsBackTokensOfBytes) {
  const Tokenizer t = tokenizer_of("sentencepiece_bpe");
  const auto id = [&](const char* token) { return t.id(token).value(); };
  TextStream stream(t);
  for (const char* token : {"<0xE2>", "<0x82>", "<0xAC>"})
    EXPECT_EQ(stream.push(id(token)), "");
  EXPECT_EQ(stream.push(id("a")), "\u20aca");
  // One byte that does not fit spoils its neighbours, as in `tokenizers`.
  for (const char* token : {"<0xE2>", "<0x82>", "<0xAC>", "<0x82>"})
    EXPECT_EQ(stream.push(id(token)), "");
  EXPECT_EQ(stream.push(id("\u2581the")), "\uFFFD\uFFFD\uFFFD\uFFFD the");
  EXPECT_EQ(stream.push(id("<0x41>")), "");
  EXPECT_EQ(stream.finish(), "A");
}

TEST(TokenizerTest, KnowsItsTokens) {
  const Tokenizer t = tokenizer_of("byte_level");
  EXPECT_EQ(t.vocab_size(), 908);
  EXPECT_EQ(t.longest_token(), 52u);  // an emoji of four people
  EXPECT_EQ(t.id("<|im_start|>"), 901);
  EXPECT_EQ(t.token(901), "<|im_start|>");
  EXPECT_EQ(t.id("no such token"), std::nullopt);
  EXPECT_TRUE(t.is_special(901));
  EXPECT_FALSE(t.is_special(t.id("<tool>").value()));
  EXPECT_EQ(t.bos(), std::nullopt);
  EXPECT_EQ(error_of([&] { t.token(908); }),
            "[tokenizer] there is no token 908; write the id of one of the 908 "
            "tokens");
  EXPECT_EQ(error_of([&] { t.token(-1); }),
            "[tokenizer] there is no token -1; write the id of one of the 908 "
            "tokens");
}

// Ids without a token are skipped, as `tokenizers` does: a model's vocabulary
// may be padded.
TEST(TokenizerTest, SkipsIdsWithoutAToken) {
  const Tokenizer t = tokenizer_of("byte_level");
  const Ids ids = t.encode("\U000411ff!", {.add_special = false});
  Ids padded = {-1, 908};
  for (int64_t id : ids) padded.insert(padded.end(), {id, INT64_MAX, 908});
  for (const bool skip : {true, false}) {
    EXPECT_EQ(t.decode(padded, {.skip_special = skip}), "\U000411ff!");
    EXPECT_EQ(streamed(t, padded, {.skip_special = skip}), "\U000411ff!");
  }
  EXPECT_EQ(t.decode(Ids{908}), "");
  EXPECT_EQ(TextStream(t).push(908), "");
}

TEST(TokenizerTest, FollowsTheConfig) {
  const json file = json_of(kData + "byte_level.json");
  const auto with = [&](const json& config) {
    return Tokenizer::from_pretrained(
        folder({{"tokenizer.json", file}, {"tokenizer_config.json", config}}));
  };
  const Tokenizer named = with({{"bos_token", "<|im_start|>"},
                                {"eos_token", {{"content", "<|im_end|>"}}},
                                {"add_bos_token", true},
                                {"add_eos_token", true}});
  EXPECT_EQ(named.bos(), 901);
  EXPECT_EQ(named.eos(), 902);
  // The file's own template adds <|begin|>, and nothing else does.
  EXPECT_EQ(named.encode(""), (Ids{900}));
  const std::string dir =
      folder({{"tokenizer.json", file},
              {"tokenizer_config.json",
               {{"added_tokens_decoder",
                 {{"908",
                   {{"__type", "AddedToken"},
                    {"content", "<new>"},
                    {"special", true}}},
                  {"901", {{"content", "<|im_start|>"}, {"special", true}}}}}}},
              {"special_tokens_map.json", {{"eos_token", "<new>"}}}});
  const Tokenizer t = Tokenizer::from_pretrained(dir);
  EXPECT_EQ(t.eos(), 908);
  EXPECT_EQ(t.encode("<new>", {.add_special = false}), (Ids{908}));
  EXPECT_EQ(t.decode(Ids{908}), "");
  EXPECT_EQ(t.decode(Ids{908}, {.skip_special = false}), "<new>");
  EXPECT_NE(error_of([&] {
              with({{"eos_token", "<missing>"}});
            }).find("tokenizer_config.json: eos_token is \"<missing>\""),
            std::string::npos);
}

TEST(TokenizerTest, RefusesMembersThatItDoesNotKnow) {
  const auto error = [](const char* file, const json& patch) {
    const std::string text = error_of([&] { tokenizer_of(file, patch); });
    return text.substr(std::min(text.size(), text.find("tokenizer.json: ")));
  };
  EXPECT_EQ(error("byte_level", {{"normalizer", {{"type", "Nmt"}}}}),
            "tokenizer.json: normalizer.type is \"Nmt\", but this library "
            "reads only NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
            "BertNormalizer, Prepend, Replace, Strip, Precompiled, ByteLevel "
            "and Sequence there; use another file");
  EXPECT_EQ(error("word_piece", {{"normalizer", {{"fold", true}}}}),
            "tokenizer.json: normalizer.fold is true, which this library "
            "does not know; use another file");
  EXPECT_EQ(error("byte_level", {{"model", {{"dropout", 0.1}}}}),
            "tokenizer.json: model.dropout is 0.1, but this library reads only "
            "null and 0 there; use another file");
  for (const char* type : {"Fuse", "ByteFallback"}) {
    json file = json_of(kData + "byte_level.json");
    file["decoder"] = {{"type", type}, {"glue", true}};
    EXPECT_NE(error_of([&] { tokenizer_from(file); })
                  .find("decoder.glue is true, which this library does not "
                        "know; use another file"),
              std::string::npos)
        << type;
  }
  EXPECT_EQ(
      error("byte_level", split("[a&&b]")),
      "tokenizer.json: pre_tokenizer.pattern is [a&&b], whose && or nested "
      "class is not supported; omit it");
  EXPECT_EQ(error("byte_level", split("(?im:a.b)")),
            "tokenizer.json: pre_tokenizer.pattern is (?im:a.b), whose option "
            "m lets . match line feeds in Oniguruma, but not in PCRE2; write "
            "[\\s\\S] for such a .");
  for (const char* allowed : {"(?i-m:a.b)", "(?<m>a)", "(?=m)", "(?:m)"})
    EXPECT_EQ(error_of([&] {
                json file = json_of(kData + "byte_level.json");
                file["pre_tokenizer"] = split(allowed)["pre_tokenizer"];
                tokenizer_from(file);
              }),
              "no error")
        << allowed;
  EXPECT_EQ(error("byte_level", split("(a")),
            "tokenizer.json: pre_tokenizer.pattern is (a, which PCRE2 does not "
            "read: missing closing parenthesis; write it in syntax that "
            "Oniguruma and PCRE2 share");
  json more = split(" ");
  more["pre_tokenizer"]["glue"] = true;
  EXPECT_EQ(error("byte_level", more),
            "tokenizer.json: pre_tokenizer.glue is true, which this library "
            "does not know; use another file");
  for (const char* member :
       {"pre_tokenizer", "post_processor", "decoder", "model"}) {
    json file = json_of(kData + "byte_level.json");
    file[member]["type"] = "Other";
    const std::string text = error_of([&] { tokenizer_from(file); });
    EXPECT_NE(text.find(fmt::format("{}.type is \"Other\"", member)),
              std::string::npos)
        << text;
  }
  EXPECT_NE(error_of([] { Tokenizer::from_pretrained("/nowhere"); })
                .find("cannot read /nowhere/tokenizer.json: No such file or "
                      "directory; make it readable, or name another folder"),
            std::string::npos);
}

// The word "abc" is a token, but its merges give two other tokens.
TEST(TokenizerTest, IgnoresMergesIfTheFileSaysSo) {
  json file = {
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"bc", 3}, {"abc", 4}}},
        {"merges", {"b c"}}}}};
  EXPECT_EQ(tokenizer_from(file).encode("abc"), (Ids{0, 3}));
  file["model"]["ignore_merges"] = false;
  EXPECT_EQ(tokenizer_from(file).encode("abc"), (Ids{0, 3}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_from(file).encode("abc"), (Ids{4}));
  // "cbc" is not a token.
  EXPECT_EQ(tokenizer_from(file).encode("cbc"), (Ids{2, 3}));
}

TEST(TokenizerTest, TakesAnEmptyUnknownTokenForNone) {
  const Tokenizer t =
      tokenizer_of("byte_level", {{"model", {{"unk_token", ""}}}});
  EXPECT_EQ(t.encode("the", {.add_special = false}),
            tokenizer_of("byte_level").encode("the", {.add_special = false}));
}

// A normalizer that keeps a piece's first character does not make the piece the
// first of its text.
TEST(TokenizerTest, PutsThePrefixOnlyBeforeTheFirstPiece) {
  const json first = {{"type", "Metaspace"},
                      {"replacement", "▁"},
                      {"prepend_scheme", "first"},
                      {"split", false}};
  const Tokenizer t = tokenizer_of(
      "sentencepiece_bpe",
      {{"normalizer", {{"type", "StripAccents"}}}, {"pre_tokenizer", first}});
  std::string tokens;
  for (int64_t id : t.encode("e</s>e")) tokens += t.token(id) + "|";
  EXPECT_EQ(tokens, "<s>|▁|e|</s>|e|</s>|");
}

// As in SentencePiece, a character may be unknown even where a longer token
// begins, if the rest of the text scores better.
TEST(TokenizerTest, UnigramsSkipACharacterForABetterRest) {
  const auto ids = [](double ab, double bc) {
    json vocab = json::array();
    vocab.push_back({"<unk>", 0.0});
    vocab.push_back({"ab", ab});
    vocab.push_back({"bc", bc});
    return tokenizer_from(
               {{"model",
                 {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}})
        .encode("abc");
  };
  EXPECT_EQ(ids(-10, -1), (Ids{0, 2}));
  EXPECT_EQ(ids(-1, -10), (Ids{1, 0}));
}

TEST(TokenizerTest, StripsATextOfWhiteSpaceAlone) {
  json file = {{"normalizer", {{"type", "Strip"}}},
               {"model",
                {{"type", "BPE"},
                 {"vocab", {{" ", 0}, {"a", 1}}},
                 {"merges", json::array()}}}};
  file["normalizer"]["strip_left"] = false;
  file["normalizer"]["strip_right"] = true;
  EXPECT_EQ(tokenizer_from(file).encode("  "), Ids{});
  EXPECT_EQ(tokenizer_from(file).encode(" a "), (Ids{0, 1}));
  file["normalizer"]["strip_left"] = true;
  file["normalizer"]["strip_right"] = false;
  EXPECT_EQ(tokenizer_from(file).encode("  "), Ids{});
  EXPECT_EQ(tokenizer_from(file).encode(" a "), (Ids{1, 0}));
}

TEST(TokenizerTest, StripsBothEndsOfTokens) {
  const Tokenizer t = tokenizer_of(
      "word_piece",
      {{"decoder",
        {{"type", "Strip"}, {"content", "n"}, {"start", 1}, {"stop", 2}}}});
  std::string text;
  for (const char* token : {"not", "in", "non"})
    text += t.decode(Ids{t.id(token).value()}) + "|";
  EXPECT_EQ(text, "ot|i|o|");
}

TEST(TokenizerTest, EndsWordsWhereTheSuffixIs) {
  const Tokenizer t = tokenizer_of(
      "word_piece", {{"decoder", {{"type", "BPEDecoder"}, {"suffix", "e"}}}});
  const Ids ids = {t.id("the").value(), t.id("the").value(), t.id("in").value(),
                   t.id("the").value()};
  EXPECT_EQ(t.decode(ids), "th th inth");
  EXPECT_EQ(streamed(t, ids), "th th inth");
}

TEST(TokenizerTest, EncodesLongRuns) {
  for (const char* name :
       {"byte_level", "sentencepiece_bpe", "unigram", "word_piece"}) {
    SCOPED_TRACE(name);
    const Tokenizer t = tokenizer_of(name);
    for (const char* unit : {" ", "a", "\n", "1", "!", "\u00e9", "\xff"}) {
      std::string text;
      for (int i = 0; i < 20'000; i++) text += unit;
      const Ids ids = t.encode(text);
      EXPECT_EQ(t.decode(ids), streamed(t, ids));
    }
  }
}

TEST(TokenizerTest, ServesManyThreads) {
  const Tokenizer t = tokenizer_of("byte_level");
  const Lines lines;
  std::vector<Ids> expected;
  for (uint64_t n = 0; n < 200; n++)
    expected.push_back(t.encode(lines.line(n)));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&] {
      for (uint64_t n = 0; n < 200; n++)
        EXPECT_EQ(t.encode(lines.line(n)), expected[n]);
    });
  for (std::thread& thread : threads) thread.join();
}

// Memory of the process's heap; 0 under a sanitizer, which has a heap of its
// own.
size_t heap_bytes() { return mallinfo2().uordblks; }

TEST(TokenizerTest, LeavesNoMemoryOfItsPatterns) {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap does not count its bytes";
  std::string scripts, groups;
  for (int i = 0; i < 100; i++) scripts += "\\p{Han}";
  for (int i = 0; i < 257; i++) groups += "(a)";  // too many
  for (const std::string& regex : {scripts, groups}) {
    const std::string dir =
        folder({{"tokenizer.json",
                 patched(json_of(kData + "byte_level.json"), split(regex))}});
    const auto read = [&] {
      const std::string error =
          error_of([&] { Tokenizer::from_pretrained(dir).encode("a"); });
      EXPECT_EQ(error == "no error", regex == scripts) << error;
    };
    for (int i = 0; i < 2; i++) read();
    const size_t before = heap_bytes();
    for (int i = 0; i < 4; i++) read();
    EXPECT_LT(heap_bytes(), before + 4 * 200) << regex.substr(0, 7);
  }
}

TEST(TokenizerTest, LeavesNoMemoryOfThreads) {
  if (heap_bytes() == 0) GTEST_SKIP() << "the heap does not count its bytes";
  const Tokenizer t = tokenizer_of("byte_level", split("a"));
  const auto encode = [&] { std::thread([&] { t.encode("ab"); }).join(); };
  for (int i = 0; i < 10; i++) encode();
  const size_t before = heap_bytes();
  for (int i = 0; i < 1000; i++) encode();
  EXPECT_LT(heap_bytes(), before + 1000 * 20);
}

}  // namespace
}  // namespace dtensor::nn
