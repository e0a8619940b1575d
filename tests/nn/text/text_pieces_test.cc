// SPDX-License-Identifier: Apache-2.0
// Text that ends before a stop string, given piece by piece, against find() in
// the whole text.
#include "dtensor/nn/text/text_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

namespace dtensor::nn {
namespace {

// The tokens are "a", "b", "ab", "bba" and the two bytes of "é".
Tokenizer tiny() {
  const std::string dir = ::testing::TempDir() + "/text_pieces";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/tokenizer.json") << R"({
    "model": {"type": "BPE", "merges": [], "vocab":
      {"a": 0, "b": 1, "ab": 2, "bba": 3, "\u00c3": 4, "\u00a9": 5}},
    "decoder": {"type": "ByteLevel"}})";
  return Tokenizer::from_pretrained(dir);
}

struct Pushed {
  std::string text = {};
  std::vector<int64_t> ids = {};
  size_t taken = 0;  // tokens, until the text stopped
  bool stopped = false;
};

// Checks every piece as it comes: all pieces are the text so far, except an end
// that may become a stop string, with the tokens that begin in them.
Pushed pushed(const Tokenizer& tokenizer, const std::vector<int64_t>& ids,
              const std::vector<std::string>& stop) {
  TextPieces pieces(tokenizer, stop);
  TextStream stream(tokenizer);
  std::string sure;
  std::vector<size_t> begins;
  Pushed p;
  const auto add = [&](const TextPiece& piece) {
    p.text += piece.text;
    for (const DrawnToken& t : piece.tokens) p.ids.push_back(t.id);
  };
  while (p.taken < ids.size() && !pieces.stopped()) {
    begins.push_back(sure.size());
    sure += stream.push(ids[p.taken]);
    add(pieces.push({.id = ids[p.taken++]}));
    EXPECT_EQ(std::ssize(p.ids),
              std::count_if(begins.begin(), begins.end(),
                            [&](size_t b) { return b < p.text.size(); }));
    if (pieces.stopped()) break;
    std::string all = tokenizer.decode(std::span(ids).first(p.taken));
    const size_t held = all.size() - p.text.size();
    EXPECT_TRUE(all.starts_with(p.text)) << all << " " << p.text;
    const std::string end = all.substr(p.text.size());
    bool may = end.find("\xEF\xBF\xBD") != end.npos;  // half a character
    for (const std::string& s : stop) may |= s.starts_with(end);
    EXPECT_TRUE(held == 0 || may) << end;
  }
  add(pieces.finish());
  p.stopped = pieces.stopped();
  return p;
}

TEST(TextPieces, EndBeforeTheFirstStopString) {
  const Tokenizer tokenizer = tiny();
  std::mt19937 random(3);
  int stopped = 0, whole = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<int64_t> ids;
    for (size_t n = random() % 12; ids.size() < n;) {
      const int64_t id = static_cast<int64_t>(random() % 6);
      if (id == 5) continue;  // only behind a 4
      ids.push_back(id);
      if (id == 4) ids.push_back(5);
    }
    std::vector<std::string> stop;
    for (size_t n = random() % 3; stop.size() < n;) {
      std::string& s = stop.emplace_back();
      for (size_t m = 1 + random() % 4; s.size() < m;)
        s += random() % 5 ? (random() % 2 ? "a" : "b") : "\u00e9";
    }
    const Pushed p = pushed(tokenizer, ids, stop);
    const std::string all = tokenizer.decode(std::span(ids).first(p.taken));
    size_t first = all.npos;
    for (const std::string& s : stop) first = std::min(first, all.find(s));
    EXPECT_EQ(p.text, all.substr(0, first)) << all;
    EXPECT_EQ(p.stopped, first != all.npos);
    if (p.stopped) {
      ++stopped;
      // It stopped as soon as the text had the stop string.
      size_t sooner = all.npos;
      const std::string before =
          tokenizer.decode(std::span(ids).first(p.taken - 1));
      for (const std::string& s : stop)
        sooner = std::min(sooner, before.find(s));
      EXPECT_EQ(sooner, all.npos) << before;
    } else {
      ++whole;
      EXPECT_EQ(p.ids, ids);
    }
  }
  EXPECT_GT(stopped, 300);
  EXPECT_GT(whole, 300);
}

TEST(TextPieces, TokensComeWithTheTextThatTheyBegin) {
  TextPieces pieces(tiny(), {"aba"});
  EXPECT_EQ(pieces.push({.id = 1}).text, "b");
  TextPiece p = pieces.push({.id = 2});
  EXPECT_EQ(p.text, "");
  EXPECT_TRUE(p.tokens.empty());
  p = pieces.push({.id = 1});  // "abb": no stop string begins there
  EXPECT_EQ(p.text, "abb");
  ASSERT_EQ(p.tokens.size(), 2u);
  EXPECT_EQ(p.tokens[0].id, 2);
  EXPECT_EQ(pieces.push({.id = 0}).text, "");
  p = pieces.finish();
  EXPECT_EQ(p.text, "a");
  EXPECT_EQ(p.tokens.size(), 1u);
  EXPECT_FALSE(pieces.stopped());
}

// A text may begin with its prompt, in which stop strings do not count.
TEST(TextPieces, APromptIsNoEnd) {
  TextPieces pieces(tiny(), {"ab"});
  EXPECT_EQ(pieces.push_prompt({.id = 2}).text, "ab");
  const TextPiece p = pieces.push_prompt({.id = 0});
  EXPECT_EQ(p.text, "a");
  ASSERT_EQ(p.tokens.size(), 1u);
  EXPECT_FALSE(pieces.stopped());
  // The "ab" that begins in the prompt does not count either.
  EXPECT_EQ(pieces.push({.id = 1}).text, "b");
  EXPECT_EQ(pieces.push_prompt({.id = 4}).text, "");  // half of "\u00e9"
  EXPECT_EQ(pieces.push({.id = 5}).text, "\u00e9");
  EXPECT_EQ(pieces.push({.id = 2}).text, "");
  EXPECT_TRUE(pieces.stopped());
}

}  // namespace
}  // namespace dtensor::nn
