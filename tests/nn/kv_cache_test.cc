// SPDX-License-Identifier: Apache-2.0
// The places that a cache gives to tokens. No model computes.
#include "dtensor/nn/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using Ids = std::vector<int64_t>;

constexpr int64_t kPage = 3, kTokens = 45;

// Random texts with few different tokens. Instead of keys, a slot holds the
// tokens up to the one whose keys would be there.
class Texts {
 public:
  explicit Texts(const LanguageModel& model)
      : mesh_(model.mesh()),
        cache_(model,
               {.tokens = kTokens, .page = kPage, .texts = 4, .step = 5}) {
    const auto layers = model.attention_layers();
    for (size_t i = 0; i < layers.size(); ++i) {
      const size_t kind = cache_.layer(static_cast<int64_t>(i)).kind;
      if (kind < kinds_.size()) continue;
      kinds_.push_back({layers[i]->config().window,
                        std::vector<Ids>(static_cast<size_t>(kTokens))});
    }
  }

  void add() {
    Ids tokens;
    for (int64_t n = 1 + below(30); n > 0; --n) tokens.push_back(below(8) == 0);
    const int64_t known = cache_.shared(tokens),
                  number = cache_.add(std::ssize(tokens), tokens);
    EXPECT_LT(known, std::ssize(tokens));
    if (number < 0) {
      ++refused;
      return;
    }
    EXPECT_EQ(cache_.length(number), known);
    shared += known;
    texts_.push_back({number, tokens});
  }

  // Takes a few more tokens of some texts. Each token finds the keys of all
  // tokens that it attends to, whatever other texts do.
  void step() {
    std::vector<CacheStep::Part> parts;
    std::vector<const Ids*> all;
    for (const Text& t : texts_) {
      const int64_t has = cache_.length(t.number),
                    n = std::min(std::ssize(t.tokens) - has, 1 + below(5));
      if (n == 0 || below(2)) continue;
      const auto from = t.tokens.begin() + has;
      parts.push_back({t.number, {from, from + n}});
      all.push_back(&t.tokens);
    }
    if (parts.empty()) return;
    const CacheStep step = cache_.step(parts);
    const CacheTokens& at = step.on(mesh_);
    const Tensor row = at.row.local(), position = at.position.local();
    const int64_t *r = row.ptr<int64_t>(), *p = position.ptr<int64_t>();
    const auto begin = [&](int64_t k, int64_t n) {
      const Ids& tokens = *all[static_cast<size_t>(r[k])];
      return Ids(tokens.begin(), tokens.begin() + n);
    };
    ASSERT_EQ(at.places.size(), kinds_.size());
    for (size_t i = 0; i < kinds_.size(); ++i) {
      auto& [window, slots] = kinds_[i];
      const Tensor slot = at.places[i].slot.local(),
                   pages = at.places[i].pages.local();
      const auto place = [&](int64_t k, int64_t q) {
        const int64_t page =
            pages.ptr<int64_t>()[r[k] * pages.shape()[1] + q / kPage];
        EXPECT_GE(page, 0);
        return page * kPage + q % kPage;
      };
      for (int64_t k = 0; k < row.numel() && r[k] >= 0; ++k) {
        EXPECT_EQ(slot.ptr<int64_t>()[k], place(k, p[k]));
        slots.at(static_cast<size_t>(place(k, p[k]))) = begin(k, p[k] + 1);
      }
      for (int64_t k = 0; k < row.numel() && r[k] >= 0; ++k)
        for (int64_t q = p[k]; q >= 0 && (!window || q > p[k] - window); --q)
          EXPECT_EQ(slots.at(static_cast<size_t>(place(k, q))),
                    begin(k, q + 1));
    }
  }

  // Ends some of the texts that are complete, or all texts.
  void end(bool all) {
    std::erase_if(texts_, [&](const Text& t) {
      const bool ends =
          all || (cache_.length(t.number) == std::ssize(t.tokens) && below(2));
      if (ends) cache_.remove(t.number);
      return ends;
    });
  }

  int64_t size() const { return std::ssize(texts_); }
  const KvCache& cache() const { return cache_; }
  int64_t below(int64_t n) { return static_cast<int64_t>(gen_()) % n; }

  int64_t shared = 0, refused = 0;

 private:
  struct Kind {
    int64_t window;
    std::vector<Ids> slots;
  };
  struct Text {
    int64_t number;
    Ids tokens;
  };
  const Mesh mesh_;
  KvCache cache_;
  std::vector<Kind> kinds_;
  std::vector<Text> texts_;
  std::mt19937 gen_{1};
};

TEST(KvCache, TextsFindTheKeysOfTheirTokens) {
  for (const char* dir :
       {"tests/nn/data/llama", "tests/nn/data/mistral", "tests/nn/data/gemma2"})
    on_mesh<int>("dp=1", [&](const Mesh& m) {
      Texts texts(*from_pretrained(dir, m));
      const int64_t free = texts.cache().free_pages();
      for (int i = 0; i < 3000 && !::testing::Test::HasFailure(); ++i) {
        if (texts.size() < 4 && texts.below(3) == 0) texts.add();
        texts.step();
        texts.end(false);
      }
      EXPECT_GT(texts.shared, 1000) << dir;
      EXPECT_GT(texts.refused, 50) << dir;
      texts.end(true);
      EXPECT_EQ(texts.cache().free_pages(), free);
      return 0;
    });
}

TEST(KvCache, ATextHasRoomForItsPrompt) {
  on_mesh<int>("dp=1", [](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m);
    KvCache cache(*model, {.tokens = kTokens, .page = kPage});
    const Ids prompt(7, 1);
    EXPECT_EQ(
        dtensor::testing::error_of([&] { cache.add(6, prompt); }),
        "[cache] a text of at most 6 tokens cannot begin with a prompt of "
        "7; reserve at least 7");
    EXPECT_EQ(cache.add(7, prompt), 0);
    return 0;
  });
}

// Products take time for each row, so a step has few rows that stand for no
// token.
TEST(KvCache, AStepHasFewMoreRowsThanTokens) {
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m);
    KvCache cache(*model, {.tokens = 200, .length = 200, .step = 200});
    for (const auto& [tokens, rows] : std::map<int64_t, int64_t>{{1, 1},
                                                                 {9, 9},
                                                                 {32, 32},
                                                                 {33, 40},
                                                                 {64, 64},
                                                                 {65, 80},
                                                                 {129, 160}}) {
      const int64_t text = cache.add(tokens);
      const CacheStep::Part part{text, Ids(static_cast<size_t>(tokens), 5)};
      EXPECT_EQ(cache.step({&part, 1}).on(m).ids.shape(), Shape({1, rows}));
      cache.remove(text);
    }
    return 0;
  });
}

}  // namespace
}  // namespace dtensor::nn
