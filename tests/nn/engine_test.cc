// SPDX-License-Identifier: Apache-2.0
// Texts that are continued with a cache of keys and values, alone and beside
// others, against models that compute the whole text for each token.
#include "dtensor/nn/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/nn/architecture.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/pretrained_config.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "tests/nn/on_mesh.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

namespace fs = std::filesystem;
using dtensor::testing::error_of;
using Ids = std::vector<int64_t>;

const LoadOptions kF64{.dtype = DType::kF64};

std::vector<std::string> families() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator("tests/nn/data"))
    if (entry.is_directory()) {
      const std::string dir = entry.path().string();
      if (architecture(read_config(dir + "/config.json").name).causal)
        all.push_back(dir);
    }
  return all;
}

// The likeliest tokens after the prompt, computed without a cache.
Ids without_cache(const std::string& dir, const Ids& prompt, int64_t tokens) {
  return on_mesh<Ids>("dp=1", [&](const Mesh& m) {
    return generate(*from_pretrained(dir, m, kF64),
                    {.tokens = tokens,
                     .prompt = prompt,
                     .sampling = {.temperature = 0},
                     .cache = false});
  });
}

std::vector<Ids> with_engine(const std::string& dir, const std::string& mesh,
                             const std::vector<Ids>& prompts, int64_t tokens,
                             const EngineOptions& options,
                             const LoadOptions& load = kF64,
                             double temperature = 0) {
  return on_mesh<std::vector<Ids>>(mesh, [&](const Mesh& m) {
    const auto model = from_pretrained(dir, m, load);
    Engine engine(*model, options);
    const int64_t free = engine.cache().free_pages();
    std::vector<Ids> out(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i)
      engine.add({.prompt = prompts[i],
                  .tokens = tokens,
                  .sampling = {.temperature = temperature, .seed = i},
                  .on_token = [&out, i](const DrawnToken& t) {
                    out[i].push_back(t.id);
                    return true;
                  }});
    while (engine.step()) {
    }
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(engine.finish(static_cast<int64_t>(i)), Finish::kLength);
    EXPECT_EQ(engine.cache().free_pages(), free);
    return out;
  });
}

TEST(Engine, TheSameTokensFromInt8WeightsOnEveryMesh) {
  const std::vector<Ids> prompts = {{7, 3, 11, 2, 9}, {5}, {40, 41}};
  const auto of = [&](const char* mesh) {
    return with_engine("tests/nn/data/llama", mesh, prompts, 9, {.texts = 2},
                       {.dtype = DType::kF64, .int8_weights = true});
  };
  const std::vector<Ids> want = of("tp=1");
  for (const char* mesh : {"tp=2", "tp=3"}) EXPECT_EQ(of(mesh), want) << mesh;
}

// Prompts of several lengths, some with equal beginnings, in chunks of 4, with
// pages of 3 and three texts at a time, give the tokens that each gives alone
// without a cache, on every mesh.
TEST(Engine, TheSameTokensAsWithoutACache) {
  const std::vector<Ids> prompts = {{7, 3, 11, 2, 9, 4, 8, 1, 30, 22},
                                    {5},
                                    {1, 2, 3, 4, 5, 6, 7},
                                    {40, 41},
                                    {7, 3, 11, 2, 9, 4, 8, 1, 30, 22},
                                    {7, 3, 11, 2, 9, 4, 6}};
  const int64_t tokens = 24;
  EXPECT_GE(families().size(), 12u);
  for (const std::string& dir : families()) {
    std::vector<Ids> want;
    for (const Ids& prompt : prompts)
      want.push_back(without_cache(dir, prompt, tokens));
    for (const char* mesh :
         {"dp=1", "tp=2", "tp=3", "tp=5", "tp=7", "dp=2,tp=3", "pp=2", "cp=2",
          "cp=3", "cp=2,tp=2", "cp=2,tp=3"})
      EXPECT_EQ(with_engine(dir, mesh, prompts, tokens,
                            {.texts = 3, .page = 3, .chunk = 4}),
                want)
          << dir << " on " << mesh;
  }
}

// In bf16, ranks that split a sum round it differently than one rank does, so
// that the tokens may differ. On one mesh, tokens are the same in every run and
// beside other texts. On meshes that split no sum, they are those of one rank.
TEST(Engine, TheSameTokensInBF16OnOneMesh) {
  std::vector<Ids> prompts;
  for (int64_t i = 0; i < 8; ++i)
    prompts.push_back({7 + i, 3, 11 - i, 2 * i, 9});
  for (const double temperature : {0.0, 1.0}) {
    const auto of = [&](const char* mesh, int64_t texts) {
      return with_engine("tests/nn/data/llama", mesh, prompts, 24,
                         {.texts = texts}, {.dtype = DType::kBF16},
                         temperature);
    };
    const std::vector<Ids> one = of("dp=1", 8);
    for (const char* mesh : {"dp=1", "dp=2", "pp=2", "tp=2", "tp=3"}) {
      const std::vector<Ids> want = of(mesh, 8);
      EXPECT_EQ(of(mesh, 8), want) << mesh << " " << temperature;
      for (int64_t texts : {1, 3})
        EXPECT_EQ(of(mesh, texts), want)
            << mesh << " " << temperature << " " << texts;
      if (mesh[0] != 't') {
        EXPECT_EQ(want, one) << mesh << " " << temperature;
      }
    }
  }
}

// The chunk limits the tokens of all prompts in a step together, but a text
// that lacks one token draws in every step.
TEST(Engine, AChunkIsSharedByPrompts) {
  on_mesh<int>("dp=1", [](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m, kF64);
    Engine engine(*model, {.texts = 3, .page = 4, .chunk = 4});
    std::vector<int> drawn(3, 0);
    const std::vector<Ids> prompts = {{7, 3, 11, 2}, {1, 2, 3, 4}, {5}};
    for (size_t i = 0; i < prompts.size(); ++i)
      engine.add({.prompt = prompts[i],
                  .tokens = 8,
                  .on_token = [&, i](const DrawnToken&) {
                    ++drawn[i];
                    return true;
                  }});
    engine.step();
    EXPECT_EQ(drawn, (std::vector<int>{1, 0, 1}));
    engine.step();
    EXPECT_EQ(drawn, (std::vector<int>{2, 1, 2}));
    return 0;
  });
}

// A text reserves only the pages that its window reaches, and uses them again.
TEST(Engine, AWindowDropsPages) {
  const std::string dir = "tests/nn/data/mistral";  // a window of 7
  const Ids prompt = {7, 3, 11, 2, 9, 4, 8, 1, 30, 22};
  EXPECT_EQ(
      with_engine(dir, "tp=2", {prompt}, 30,
                  {.texts = 1, .cache_tokens = 40, .page = 2, .chunk = 4}),
      std::vector<Ids>{without_cache(dir, prompt, 30)});
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const auto model = from_pretrained(dir, m, kF64);
    KvCache cache(*model, {.tokens = 40, .page = 2, .step = 4});
    const int64_t free = cache.free_pages();
    cache.add(40);
    EXPECT_EQ(free - cache.free_pages(), 7);  // of 20: (7 + 4) / 2 and one more
    return 0;
  });
}

// The first of gemma2's two layers has a window of 7. A text with 4 new tokens
// needs at most 7 of its pages of 2.
TEST(Engine, LayersWithAWindowHaveFewerPages) {
  const std::string dir = "tests/nn/data/gemma2";
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const auto model = from_pretrained(dir, m);
    const KvCache cache(*model,
                        {.tokens = 90, .page = 2, .texts = 2, .step = 4});
    EXPECT_EQ(cache.layer(0).k.size(0), 2 * 7 * 2);
    EXPECT_EQ(cache.layer(1).k.size(0), 90);
    return 0;
  });
  const Ids prompt = {7, 3, 11, 2, 9, 4, 8, 1, 30, 22};
  EXPECT_EQ(
      with_engine(dir, "cp=2,tp=2", {prompt, prompt}, 30,
                  {.texts = 2, .cache_tokens = 80, .page = 2, .chunk = 4}),
      std::vector<Ids>(2, without_cache(dir, prompt, 30)));
}

// The first of equal prompts is computed, and the others take its whole pages,
// which exist once.
TEST(Engine, EqualPromptsAreComputedOnce) {
  const Ids prompt = {7, 3, 11, 2, 9,  4,  8,  1,  30, 22, 5,
                      6, 7, 8,  9, 10, 11, 12, 13, 14, 15};
  const auto pages = [&](const char* dir, bool share) {
    return on_mesh<int64_t>("cp=2", [&](const Mesh& m) {
      const auto model = from_pretrained(dir, m, kF64);
      Engine engine(*model,
                    {.texts = 4, .page = 4, .chunk = 8, .share = share});
      const int64_t free = engine.cache().free_pages();
      for (int i = 0; i < 4; ++i)
        engine.add({.prompt = prompt, .tokens = 4, .sampling = {.seed = 1}});
      while (engine.waiting() > 0) EXPECT_TRUE(engine.step());
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(engine.cached_tokens(i), share && i ? 20 : 0);
      EXPECT_EQ(engine.cached_tokens(), share ? 60 : 0);
      const int64_t used = free - engine.cache().free_pages();
      while (engine.step()) {
      }
      EXPECT_EQ(engine.cache().free_pages(), free);
      return used;
    });
  };
  EXPECT_EQ(pages("tests/nn/data/llama", false), 4 * 6);
  EXPECT_EQ(pages("tests/nn/data/llama", true), 6 + 3 * 1);
  // The window is 7, so texts use fewer pages.
  EXPECT_EQ(pages("tests/nn/data/mistral", true), 4 * 5);
}

// The pages of a text that has ended are still there for one that continues it.
TEST(Engine, ChatsGoOnWithTheirPages) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m, kF64);
    Engine engine(*model, {.texts = 2, .cache_tokens = 40, .page = 4});
    Ids text = {7, 3, 11, 2, 9};
    const auto go_on = [&](Ids prompt, int64_t tokens) {
      const int64_t n = engine.add({.prompt = std::move(prompt),
                                    .tokens = tokens,
                                    .on_token = [&](const DrawnToken& t) {
                                      text.push_back(t.id);
                                      return true;
                                    }});
      while (engine.step()) {
      }
      return engine.cached_tokens(n);
    };
    EXPECT_EQ(go_on(text, 12), 0);
    EXPECT_EQ(text.size(), 17u);
    const Ids first = text;
    EXPECT_EQ(go_on(text, 4), 16);
    // Other texts need pages: those of the text's end are taken before those of
    // its beginning.
    EXPECT_EQ(go_on(Ids(1, 60), 25), 0);
    EXPECT_EQ(go_on(first, 1), 12);
    EXPECT_EQ(go_on(Ids(1, 61), 39), 0);
    EXPECT_EQ(go_on(first, 1), 0);
    return 0;
  });
}

// Each rank of cp has its share of the pages, and of the tokens of each text.
TEST(Engine, RanksOfCpShareThePages) {
  const auto bytes = [](const char* mesh) {
    return on_mesh<int64_t>(mesh, [&](const Mesh& m) {
      const auto model = from_pretrained("tests/nn/data/llama", m);
      KvCache cache(*model, {.tokens = 96, .page = 4, .texts = 2, .step = 40});
      const CacheStep::Part parts[] = {
          {.text = cache.add(50), .tokens = Ids(21, 1)},
          {.text = cache.add(40), .tokens = Ids(30, 1)}};
      const CacheStep step = cache.step(parts);
      const Tensor pages = step.on(m).places[0].pages.full();
      const IntervalList mine = cache.layer(0).k.region()[0];
      for (int64_t text = 0; text < 2; ++text) {
        int64_t all = 0, here = 0;
        for (int64_t i = 0; i < pages.shape()[1]; ++i) {
          const int64_t p = pages.ptr<int64_t>()[text * pages.shape()[1] + i];
          all += p >= 0;
          for (const Interval& r : mine) here += r.lo <= p * 4 && p * 4 < r.hi;
        }
        EXPECT_EQ(all, text ? 8 : 6);
        const int64_t ranks = m.num_ranks();
        EXPECT_GE(here, all / ranks);
        EXPECT_LE(here, (all + ranks - 1) / ranks);
      }
      return cache.bytes();
    });
  };
  const int64_t whole = bytes("dp=1");
  EXPECT_EQ(bytes("cp=2"), whole / 2);
  EXPECT_EQ(bytes("cp=3"), whole / 3);
}

// The first step computes the prompt, and the second one a token. Later steps
// decide no layout.
TEST(Engine, StepsAreWarm) {
  for (const double temperature : {0, 1})
    on_mesh<int>("tp=3", [&](const Mesh& m) {
      const auto model = from_pretrained("tests/nn/data/llama", m);
      Engine engine(*model, {.texts = 1});
      engine.add({.prompt = {1, 2, 3},
                  .tokens = 50,
                  .sampling = {.temperature = temperature}});
      for (int i = 0; i < 2; ++i) EXPECT_TRUE(engine.step());
      const int64_t cold = decision_use(RankContext::current()).misses;
      while (engine.step()) {
      }
      EXPECT_EQ(decision_use(RankContext::current()).misses, cold);
      return 0;
    });
}

// A model like tests/nn/data/llama, but random and of sizes that ranks divide.
ModelConfig small_llama(DType dtype) {
  return {.name = "llama",
          .layers = 3,
          .hidden = 24,
          .heads = 12,
          .seq = 64,
          .vocab = 50,
          .dtype = dtype};
}

// While texts of several lengths and kinds come and go, memory does not grow,
// and no layout is decided.
TEST(Engine, MemoryIsConstant) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = make_model(small_llama(DType::kF32), m);
    Engine engine(*model, {.texts = 3, .cache_tokens = 128, .chunk = 8});
    RankContext& context = RankContext::current();
    int64_t added = 0, cold = 0, bytes = 0;
    for (int64_t steps = 0; steps < 1'200; ++steps) {
      while (engine.waiting() == 0) {
        const int64_t number =
            engine.add({.prompt = Ids(static_cast<size_t>(1 + added % 11), 3),
                        .tokens = 1 + added % 7,
                        .sampling = {.temperature = added % 3 == 0 ? 0.5 : 0}});
        if (++added > 10) engine.forget(number - 10);
      }
      EXPECT_TRUE(engine.step());
      const int64_t in_use = context.allocator->stats().peak_bytes;
      if (steps == 400) {
        cold = decision_use(context).misses;
        bytes = in_use;
      }
      EXPECT_TRUE(steps <= 400 || in_use == bytes) << in_use - bytes;
    }
    EXPECT_EQ(decision_use(context).misses, cold);
    EXPECT_GT(added, 300);
    return 0;
  });
}

// Requests of every kind in one batch. The ranks find the likeliest token
// together, and it is that of the gathered logits, also if some of these are
// NaN.
TEST(Engine, TheLikeliestTokenNeedsNoLogits) {
  const auto tokens_of = [](const std::string& mesh, DType dtype, bool nan,
                            bool logprobs) {
    return on_mesh<std::vector<Ids>>(mesh, [&](const Mesh& m) {
      const auto model = make_model(small_llama(dtype), m, 5);
      for (const NamedParameter& p : model->named_parameters()) {
        if (!nan || p.name != "lm_head.weight") continue;
        std::vector<double> rows = onto(m, p.tensor).full().to_doubles();
        std::fill_n(rows.begin() + 24, 24, std::nan(""));  // token 1
        const Tensor all = Tensor::from({50, 24}, rows.data());
        assign(p.tensor, DistTensor::from_global(all, p.tensor.mesh(),
                                                 p.tensor.layout()));
      }
      Engine engine(*model, {.texts = 4, .chunk = 8});
      std::vector<Ids> out(5);
      const std::vector<Sampling> sampling = {
          {.temperature = 0},
          {.temperature = 0.5, .seed = 3},
          {.temperature = 0},
          {.repetition_penalty = 3, .temperature = 0},
          {.temperature = 0, .top_k = 2}};
      for (size_t i = 0; i < out.size(); ++i)
        engine.add({.prompt = Ids(i + 1, static_cast<int64_t>(7 * i)),
                    .tokens = static_cast<int64_t>(10 + i),
                    .sampling = sampling[i],
                    .logprobs = logprobs,
                    .on_token = [&out, i](const DrawnToken& t) {
                      out[i].push_back(t.id);
                      return true;
                    }});
      while (engine.step()) {
      }
      return out;
    });
  };
  for (const bool nan : {false, true}) {
    const auto want = tokens_of("dp=1", DType::kF64, nan, true);
    for (const char* mesh : {"dp=1", "tp=2", "tp=3", "dp=2,tp=2", "pp=2"})
      EXPECT_EQ(tokens_of(mesh, DType::kF64, nan, false), want)
          << mesh << (nan ? ", NaN" : "");
  }
  // Logits in bf16 are often equal, so ties are common.
  EXPECT_EQ(tokens_of("tp=3", DType::kBF16, false, false),
            tokens_of("tp=3", DType::kBF16, false, true));
}

// A step of one text receives, on each of n ranks, 2 L + 1 all-reduces of the
// hidden numbers, 2 (n - 1) / n of their bytes each: after o_proj and down_proj
// of each layer, and after the embedding, whose vocabulary is split. And the
// likeliest token of each other rank, with its logit.
TEST(Engine, AStepSendsTheFormula) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t n : {2, 3, 4})
      run(n, [&](Runtime& rt) {
        const Mesh mesh = rt.mesh({{"tp", n}});
        const ModelConfig config = small_llama(dtype);
        const auto model = make_model(config, mesh);
        Engine engine(*model, {.texts = 1});
        engine.add({.prompt = {1, 2, 3},
                    .tokens = 20,
                    .sampling = {.temperature = 0}});
        const int64_t size = size_of(dtype),
                      sums = (2 * config.layers + 1) * 2 * (n - 1) *
                             config.hidden / n * size,
                      best = (n - 1) * (size + int64_t{sizeof(int64_t)});
        EXPECT_TRUE(engine.step());
        int64_t steps = 1;
        while (true) {
          const CommRecord record;
          if (!engine.step()) break;
          int64_t counted = 0, predicted = 0;
          for (const CommEvent& e : record.events()) {
            counted += e.counted;
            predicted += e.predicted;
          }
          EXPECT_EQ(counted, sums + best) << "step " << steps;
          EXPECT_EQ(predicted, sums + best);
          ++steps;
        }
        EXPECT_EQ(steps, 20);
      });
}

// The mean of the prompts' logprobs is the loss that transformers computes, and
// the likeliest tokens are those of the logits of whole texts. Another text is
// generated in the same batch.
TEST(Engine, ScoresPrompts) {
  for (const std::string& dir : families()) {
    const SafetensorsReader expected(dir + "/expected.safetensors");
    const Tensor ids = expected.read("input_ids");
    const double loss = values(expected.read("loss"))[0];
    const int64_t rows = ids.shape()[0], n = ids.shape()[1];
    std::vector<Ids> prompts;
    for (int64_t i = 0; i < rows; ++i)
      prompts.emplace_back(ids.ptr<int64_t>() + i * n,
                           ids.ptr<int64_t>() + (i + 1) * n);
    const Ids beside = without_cache(dir, {5, 6}, 9);
    for (const char* mesh :
         {"dp=1", "tp=2", "tp=3", "dp=2,tp=2", "pp=2", "cp=2,tp=2"}) {
      SCOPED_TRACE(dir + " on " + mesh);
      std::vector<double> logits;
      const auto scored = on_mesh<std::vector<std::vector<DrawnToken>>>(
          mesh, [&](const Mesh& m) {
            const auto model = from_pretrained(dir, m, kF64);
            const Tensor all =
                onto(m, model->logits(DistTensor::from_global(
                            ids, m, Layout::replicated(ids.shape()))))
                    .full();
            const bool first = RankContext::current().world_rank == 0;
            if (first) logits = all.to_doubles();
            Engine engine(*model, {.texts = 3, .page = 4, .chunk = 7});
            const int64_t free = engine.cache().free_pages();
            std::vector<std::vector<DrawnToken>> out(prompts.size());
            Ids generated;
            engine.add({.prompt = {5, 6},
                        .tokens = 9,
                        .sampling = {.temperature = 0},
                        .on_token = [&](const DrawnToken& t) {
                          generated.push_back(t.id);
                          return true;
                        }});
            for (size_t i = 0; i < prompts.size(); ++i)
              engine.add({.prompt = prompts[i],
                          .tokens = static_cast<int64_t>(i),
                          .sampling = {.temperature = 0},
                          .likeliest = static_cast<int64_t>(2 * i),
                          .logprobs = true,
                          .on_token =
                              [&out, i](const DrawnToken& t) {
                                out[i].push_back(t);
                                return true;
                              },
                          .scores_prompt = true,
                          .on_prompt =
                              [&out, i](const DrawnToken& t) {
                                out[i].push_back(t);
                              }});
            while (engine.step()) {
            }
            for (int64_t i = 0; i <= rows; ++i)
              EXPECT_EQ(engine.finish(i), Finish::kLength);
            EXPECT_EQ(engine.cache().free_pages(), free);
            EXPECT_EQ(generated, beside);
            return out;
          });
      const int64_t vocab = std::ssize(logits) / (rows * n);
      double sum = 0;
      for (size_t i = 0; i < prompts.size(); ++i) {
        ASSERT_EQ(std::ssize(scored[i]), n + static_cast<int64_t>(i));
        EXPECT_TRUE(std::isnan(scored[i][0].logprob));
        EXPECT_TRUE(scored[i][0].likeliest.empty());
        for (int64_t t = 0; t < std::ssize(scored[i]); ++t) {
          const DrawnToken& token = scored[i][static_cast<size_t>(t)];
          if (t < n) {
            EXPECT_EQ(token.id, prompts[i][static_cast<size_t>(t)]);
          }
          if (t == 0 || t > n) continue;
          const double* row = &logits[static_cast<size_t>(
              (static_cast<int64_t>(i) * n + t - 1) * vocab)];
          double exps = 0;
          for (int64_t v = 0; v < vocab; ++v) exps += std::exp(row[v]);
          EXPECT_NEAR(token.logprob, row[token.id] - std::log(exps), 1e-9);
          ASSERT_EQ(token.likeliest.size(), 2 * i);
          double before = 1;
          for (const auto& [id, logprob] : token.likeliest) {
            EXPECT_NEAR(logprob, row[id] - std::log(exps), 1e-9);
            EXPECT_LT(logprob, before);
            before = logprob;
          }
          const double most = *std::max_element(row, row + vocab);
          if (i > 0) {
            EXPECT_EQ(row[token.likeliest[0].first], most);
          }
          if (t < n) sum += token.logprob;
        }
      }
      EXPECT_NEAR(-sum / static_cast<double>(rows * (n - 1)), loss, 1e-9);
    }
  }
}

// If a token is the likeliest one, its logprob equals that of the likeliest
// exactly. Clients compare the two to see if the model would have written a
// text.
TEST(Engine, ALikeliestTokenHasTheLogprobOfTheLikeliest) {
  for (const char* mesh : {"dp=1", "tp=2", "tp=3"})
    for (const DType dtype : {DType::kF32, DType::kBF16})
      on_mesh<int>(mesh, [&](const Mesh& m) {
        const auto model =
            from_pretrained("tests/nn/data/llama", m, {.dtype = dtype});
        Ids text = {7, 3, 11};
        for (const int64_t t :
             generate(*model, {.tokens = 20,
                              .prompt = text,
                              .sampling = {.temperature = 0}}))
          text.push_back(t);
        Engine engine(*model, {.texts = 1});
        size_t at = 0;
        engine.add({.prompt = text,
                    .tokens = 0,
                    .likeliest = 2,
                    .scores_prompt = true,
                    .on_prompt = [&](const DrawnToken& t) {
                      if (at++ < 3) return;
                      EXPECT_EQ(t.logprob, t.likeliest[0].second);
                      EXPECT_LE(t.likeliest[1].second, t.logprob);
                    }});
        while (engine.step()) {
        }
        EXPECT_EQ(at, text.size());
        return 0;
      });
}

// A prompt may fill the model's longest sequence. To score it, its beginning is
// computed again even if the cache has it.
TEST(Engine, ScoresWholePrompts) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m, kF64);
    Engine engine(*model, {.texts = 2, .page = 8, .chunk = 64});
    Ids prompt(64, 9);
    prompt.back() = 7;
    std::vector<double> first, second;
    for (std::vector<double>* out : {&first, &second}) {
      const int64_t number = engine.add({.prompt = prompt,
                                         .tokens = 0,
                                         .scores_prompt = true,
                                         .on_prompt = [&](const DrawnToken& t) {
                                           out->push_back(t.logprob);
                                         }});
      while (engine.step()) {
      }
      EXPECT_EQ(engine.finish(number), Finish::kLength);
      EXPECT_EQ(engine.cached_tokens(number), 0);
      EXPECT_EQ(out->size(), 64u);
    }
    EXPECT_TRUE(std::equal(first.begin() + 1, first.end(), second.begin() + 1));
    // A text that is read without scores shares the beginning. No token is
    // drawn.
    const int64_t read = engine.add(
        {.prompt = prompt, .tokens = 0, .on_token = [](const DrawnToken&) {
           ADD_FAILURE();
           return true;
         }});
    while (engine.step()) {
    }
    EXPECT_EQ(engine.finish(read), Finish::kLength);
    EXPECT_EQ(engine.cached_tokens(read), 56);
    return 0;
  });
}

// A rank receives a few numbers for each token of a prompt, not the logits.
TEST(Engine, ScoresNeedNoLogits) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    ModelConfig config = small_llama(DType::kF32);
    config.vocab = 4000;
    const auto model = make_model(config, m);
    const auto received = [&](bool scores) {
      Engine engine(*model, {.texts = 1, .share = false});
      engine.add({.prompt = Ids(16, 3),
                  .tokens = 0,
                  .likeliest = 2,
                  .scores_prompt = scores});
      const CommRecord record;
      EXPECT_TRUE(engine.step());
      EXPECT_FALSE(engine.step());
      int64_t bytes = 0;
      for (const CommEvent& e : record.events()) bytes += e.counted;
      return bytes;
    };
    EXPECT_LT(received(true) - received(false), 16 * 200);
    EXPECT_GT(received(true), received(false));
    return 0;
  });
}

TEST(Engine, StopsAndCancels) {
  on_mesh<int>("tp=2", [&](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/gpt2", m, kF64);
    Engine engine(*model, {.texts = 2});
    const auto add = [&](TextRequest r) {
      r.prompt = {1, 2, 3};
      r.tokens = 20;
      r.sampling.temperature = 0;
      return engine.add(std::move(r));
    };
    Ids all, some;
    const int64_t whole = add({.on_token = [&](const DrawnToken& t) {
      all.push_back(t.id);
      return true;
    }});
    const int64_t cancelled = add({}), waiting = add({});
    EXPECT_TRUE(engine.step());
    EXPECT_EQ(engine.running(), 2);
    EXPECT_EQ(engine.waiting(), 1);
    engine.cancel(cancelled);
    engine.cancel(waiting);
    EXPECT_EQ(engine.running(), 1);
    EXPECT_EQ(engine.waiting(), 0);
    while (engine.step()) {
    }
    EXPECT_EQ(engine.finish(whole), Finish::kLength);
    EXPECT_EQ(engine.finish(cancelled), Finish::kCallback);
    EXPECT_EQ(all.size(), 20u);
    const int64_t stopped = add({.stop = {all[4]}});
    const int64_t refused = add({.on_token = [&](const DrawnToken& t) {
      some.push_back(t.id);
      return some.size() < 3;
    }});
    while (engine.step()) {
    }
    EXPECT_EQ(engine.finish(stopped), Finish::kStopToken);
    EXPECT_EQ(engine.finish(refused), Finish::kCallback);
    EXPECT_EQ(some, Ids(all.begin(), all.begin() + 3));
    engine.forget(refused);
    EXPECT_EQ(error_of([&] { engine.finish(refused); }),
              "[generate] there is no request 4; pass a number that add() "
              "returned and that was not forgotten");
    const int64_t runs = add({});
    EXPECT_EQ(error_of([&] { engine.forget(runs); }),
              "[generate] request 5 has not ended; cancel it first");
    return 0;
  });
}

// Texts are also cancelled in the middle of a prompt, and while they share
// pages.
TEST(Engine, CancelledTextsGiveTheirPagesBack) {
  for (const char* dir : {"tests/nn/data/llama", "tests/nn/data/gemma2"})
    on_mesh<int>("tp=2", [&](const Mesh& m) {
      const auto model = from_pretrained(dir, m);
      Engine engine(*model, {.texts = 3, .page = 2, .chunk = 4});
      const int64_t free = engine.cache().free_pages();
      const Ids prompt = {7, 3, 11, 2, 9, 4, 8, 1, 30, 22};
      for (int i = 0; i < 3; ++i) engine.add({.prompt = prompt, .tokens = 9});
      EXPECT_TRUE(engine.step());
      engine.cancel(0);
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine.step());
      EXPECT_EQ(engine.running(), 2);
      engine.cancel(1);
      EXPECT_TRUE(engine.step());
      EXPECT_LT(engine.cache().free_pages(), free);
      engine.cancel(2);
      EXPECT_FALSE(engine.step());
      EXPECT_EQ(engine.cache().free_pages(), free);
      return 0;
    });
}

TEST(Engine, RefusesWhatDoesNotFit) {
  on_mesh<int>("dp=1", [&](const Mesh& m) {
    const auto model = from_pretrained("tests/nn/data/llama", m);
    Engine engine(*model, {.texts = 2, .cache_tokens = 20});
    EXPECT_EQ(engine.longest(), 20);
    EXPECT_EQ(Engine(*model, {.texts = 2}).longest(), 64);
    const Engine shorter(*model, {.texts = 2, .length = 20, .page = 10});
    EXPECT_EQ(shorter.longest(), 20);
    EXPECT_EQ(shorter.cache().free_pages(), 4);
    EXPECT_EQ(
        error_of([&] { shorter.check({.prompt = Ids(10, 1), .tokens = 11}); }),
        "[generate] the prompt's length is 10 and the number of new tokens 11, "
        "but the longest text is 20; make their sum at most 20 (at most 10 "
        "new)");
    EXPECT_EQ(error_of([&] { Engine(*model, {.length = 65}); }),
              "[generate] texts of 65 tokens are asked for, but the model's "
              "longest sequence is 64; write at most that");
    EXPECT_EQ(
        error_of([&] { Engine(*model, {.texts = INT64_MAX}); }),
        "[generate] 9223372036854775807 texts of 64 tokens are more than a "
        "cache can have; write at most 1048576 texts, and at most "
        "1099511627776 tokens in all");
    EXPECT_EQ(error_of([&] {
                Engine(*model, {.texts = EngineOptions::kMostTexts + 1,
                                .cache_tokens = 40});
              }),
              "[generate] 1048577 texts of 64 tokens are more than a cache can "
              "have; write at most 1048576 texts, and at most 1099511627776 "
              "tokens in all");
    for (const int64_t tokens : {int64_t{-1}, EngineOptions::kMostTokens + 1})
      EXPECT_EQ(error_of([&] { Engine(*model, {.cache_tokens = tokens}); }),
                "[generate] a cache of " + std::to_string(tokens) +
                    " tokens is asked for; write 0 to 1099511627776");
    EXPECT_NE(error_of([&] {
                Engine(*model, {.length = -1});
              }).find("texts is 8, length -1 and chunk 256; write 1 or more"),
              std::string::npos);
    // A step is never longer than a text.
    const Engine at_once(*model, {.texts = 2, .chunk = INT64_MAX});
    EXPECT_EQ(at_once.cache().free_pages(), 4);
    EXPECT_EQ(error_of([&] { engine.check({.prompt = {1}}); }), "no error");
    const auto error = [&](const TextRequest& r) {
      const std::string text = error_of([&] { engine.check(r); });
      EXPECT_EQ(error_of([&] { engine.add(r); }), text);
      return text;
    };
    EXPECT_NE(error({.prompt = {}}).find("the prompt is empty"),
              std::string::npos)
        << error({.prompt = {}});
    EXPECT_EQ(error({.prompt = {251}}),
              "[generate] the prompt has the token 251, which is not in the "
              "vocabulary of 251; write tokens from 0 to 250");
    EXPECT_EQ(
        error({.prompt = Ids(60, 1), .tokens = 5}),
        "[generate] the prompt's length is 60 and the number of new tokens 5, "
        "but the model's longest sequence is 64; make their sum at most 64 "
        "(at most 4 new)");
    EXPECT_EQ(error({.prompt = Ids(10, 1), .tokens = 11}),
              "[generate] the prompt's length is 10 and the number of new "
              "tokens 11, but the cache is for 20; make their sum at most 20, "
              "or make a cache for 21");
    EXPECT_TRUE(error({.prompt = Ids(64, 1), .tokens = 1})
                    .ends_with("is 64; make their sum at most 64"));
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    EXPECT_NE(error({.prompt = {1}, .tokens = kMost}).find("at most 63 new"),
              std::string::npos);
    engine.cancel(99);  // no such request
    EXPECT_NE(error_of([&] { engine.finish(99); }), "no error");
    const auto encoder = from_pretrained("tests/nn/data/bert", m);
    EXPECT_EQ(
        error_of([&] { Engine(*encoder, {}); }),
        "[cache] the model \"bert\" cannot be continued token by token; call "
        "features() on whole texts, or use a decoder that make_model() makes, "
        "such as a gpt");
    const auto masked = from_pretrained("tests/nn/data/bert-mlm", m);
    EXPECT_EQ(error_of([&] { generate(*masked, {.prompt = {1}}); }),
              "[generate] a bert-mlm is an encoder, which cannot continue a "
              "text; use a decoder, such as a gpt");
    return 0;
  });
}

// The bytes of the elements of `to` that this rank holds, but not in `from`.
int64_t missing_bytes(const DistTensor& to, const DistTensor& from) {
  if (!to.here()) return 0;
  const auto holds = [](const IntervalList& ranges, int64_t i) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Interval& r) {
      return r.lo <= i && i < r.hi;
    });
  };
  int64_t all = 1, both = 1;
  for (int d = 0; d < to.ndim(); ++d) {
    int64_t n = 0, shared = 0;
    for (int64_t i = 0; i < to.size(d); ++i) {
      if (!holds(to.region(d), i)) continue;
      ++n;
      shared += from.here() && holds(from.region(d), i);
    }
    all *= n;
    both *= shared;
  }
  return (all - both * from.here()) * size_of(to.dtype());
}

// A trainer on dp=2,tp=2 gives its parameters to an engine on tp=3 that is in
// the middle of a text.
TEST(Engine, TakesParametersFromAnotherMesh) {
  for (const std::string& dir : families()) {
    SCOPED_TRACE(dir);
    const Ids prompt = {7, 3, 11, 2, 9};
    run(4, [&](Runtime& rt) {
      const Mesh train({{"dp", 2}, {"tp", 2}}), answer({{"tp", 3}}, {3, 1, 0});
      const auto trained = from_pretrained(dir, train, kF64);
      const auto model = from_pretrained(dir, answer, kF64);
      for (const NamedParameter& p : trained->named_parameters())
        assign(p.tensor, p.tensor * 1.25);
      const Ids want = [&] {
        const Mesh one({{"dp", 1}}, {2});
        const auto alone = from_pretrained(dir, one, kF64);
        assign(alone->named_parameters(), trained->named_parameters());
        if (rt.rank() != 2) return Ids();
        return generate(*alone, {.tokens = 6,
                                 .prompt = prompt,
                                 .sampling = {.temperature = 0},
                                 .cache = false});
      }();
      Ids got;
      int64_t running = 0;
      const bool answers = answer.contains(rt.rank());
      std::optional<Engine> engine;
      const auto ask = [&](Ids* to, int64_t tokens) {
        engine->add({.prompt = prompt,
                     .tokens = tokens,
                     .sampling = {.temperature = 0},
                     .on_token = [=](const DrawnToken& t) {
                       if (to) to->push_back(t.id);
                       return true;
                     }});
      };
      if (answers) {
        engine.emplace(*model,
                       EngineOptions{.texts = 2, .length = 16, .page = 2});
        ask(nullptr, 11);
        engine->step();
        engine->step();
      }
      {
        const CommRecord record;
        if (answers)
          engine->update(trained->named_parameters());
        else
          assign(model->named_parameters(), trained->named_parameters());
        int64_t bytes = 0, bound = 0;
        for (const CommEvent& e : record.events()) bytes += e.counted;
        const auto to = model->named_parameters(),
                   from = trained->named_parameters();
        for (size_t i = 0; i < to.size(); ++i)
          bound += missing_bytes(to[i].tensor, from[i].tensor);
        EXPECT_EQ(bytes, bound);
      }
      if (answers) {
        ask(&got, 6);
        while (engine->step()) running += engine->running();
        EXPECT_GT(running, 6);
      }
      // Every rank has the tokens of rank 2 and of rank 0.
      const auto texts = [](const Ids& ids) {
        return all_gather_bytes(
            "test", 0,
            {reinterpret_cast<const char*>(ids.data()), ids.size() * 8});
      };
      EXPECT_EQ(texts(want)[2], texts(got)[0]);
      EXPECT_EQ(texts(got)[1], texts(got)[0]);
    });
  }
}

// Parameters of ZeRO 3 are not gathered, also if the types differ.
TEST(Engine, TakesShardsInAnotherType) {
  run(3, [&](Runtime&) {
    const Mesh train({{"dp", 3}}), answer({{"tp", 2}}, {2, 0});
    const std::string dir = families()[0];
    const ModelConfig config = read_config(dir + "/config.json");
    const auto plan = zero(default_plan(config, train), 3);
    const auto trained =
        from_pretrained(dir, train, {.dtype = DType::kF32, .plan = plan});
    const auto model = from_pretrained(dir, answer, {.dtype = DType::kBF16});
    const auto to = model->named_parameters(),
               from = trained->named_parameters();
    const CommRecord record;
    assign(to, from);
    int64_t bytes = 0, bound = 0;
    for (const CommEvent& e : record.events()) bytes += e.counted;
    for (size_t i = 0; i < to.size(); ++i)
      bound += missing_bytes(to[i].tensor, from[i].tensor);
    EXPECT_EQ(bytes, bound);
  });
}

TEST(Engine, RefusesOtherParameters) {
  const auto error = [](auto change) {
    return error_of([&] {
      run(2, [&](Runtime&) {
        const Mesh mesh({{"tp", 2}});
        const auto model = from_pretrained(families()[0], mesh, kF64);
        Engine engine(*model, {.texts = 1, .length = 8});
        std::vector<NamedTensor> values = model->named_parameters();
        change(values);
        engine.update(values);
      });
    });
  };
  using Values = std::vector<NamedTensor>;
  EXPECT_NE(error([](Values& v) { v.pop_back(); }).find("no value is given"),
            std::string::npos);
  EXPECT_NE(error([](Values& v) { v.push_back(v[0]); }).find("given twice"),
            std::string::npos);
  EXPECT_NE(error([](Values& v) {
              v.push_back({"other", v[0].tensor});
            }).find("there is no parameter other"),
            std::string::npos);
  EXPECT_NE(error([](Values& v) {
              v[0].tensor = zeros({1, 2, 3}, v[0].tensor.mesh());
            }).find("does not have the shape of the parameter"),
            std::string::npos);
}

}  // namespace
}  // namespace dtensor::nn
