// SPDX-License-Identifier: Apache-2.0
// Trainings with RunOptions::reproducible: every mesh gives the bits of one
// rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/io/checkpoint.h"
#include "dtensor/nn/between_meshes.h"
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/engine.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/losses.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/testing.h"

namespace dtensor::nn {
namespace {

using testing::error_of;

struct Case {
  std::string model = "gpt", mesh = "dp=1";
  DType dtype = DType::kF32;
  int stage = 0;
  int64_t micro_batches = 1, rows = 12, seq = 8, hidden = 24, heads = 3,
          kv_heads = 0, vocab = 17;
  bool sequence_parallel = false;
  std::string text() const {
    return fmt::format(
        "{} on {}, {}, ZeRO {}, {} micro-batches of {} x {}, hidden {}, "
        "kv_heads {}{}",
        model, mesh, name(dtype), stage, micro_batches, rows, seq, hidden,
        kv_heads, sequence_parallel ? ", sequence parallel" : "");
  }
};

// The bits of losses, norms and parameters after some steps. With a folder, the
// steps are those after its latest checkpoint, and another one is saved.
std::vector<uint64_t> trained(const Case& c, int64_t steps = 3,
                              bool reproducible = true,
                              const std::string& folder = "") {
  std::vector<uint64_t> bits;
  const Mesh mesh = Mesh::parse(c.mesh);
  RunOptions options;
  options.world = mesh.num_ranks();
  options.reproducible = reproducible;
  const auto batches = [&](int64_t step) {
    std::vector<int64_t> in, out;
    for (int64_t i = 0; i < c.rows * c.seq; ++i) {
      in.push_back((step * 7 + i * i + i / 3) % c.vocab);
      out.push_back((in.back() * 5 + 1) % c.vocab);
    }
    return Batch{Tensor::from({c.rows, c.seq}, in.data()),
                 Tensor::from({c.rows, c.seq}, out.data())};
  };
  run(options, [&](Runtime& rt) {
    const ModelConfig config{.name = c.model,
                             .layers = 2,
                             .hidden = c.hidden,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .seq = c.seq,
                             .vocab = c.vocab,
                             .dtype = c.dtype};
    ParallelPlan plan = zero(default_plan(config, mesh), c.stage, "dp");
    if (c.sequence_parallel) plan = sequence_parallel(plan);
    const auto model = make_model(config, mesh, plan);
    Trainer trainer(*model, {.steps = 10,
                             .lr = 0.01,
                             .clip = 0.5,
                             .micro_batches = c.micro_batches,
                             .checkpoints = folder,
                             .progress = false});
    if (!folder.empty())
      if (const auto latest = latest_checkpoint(folder)) trainer.load(*latest);
    for (int64_t i = 0; i < steps; ++i) {
      const StepResult r = trainer.step(batches);
      if (rt.rank() != 0) continue;
      bits.push_back(std::bit_cast<uint64_t>(r.loss));
      bits.push_back(std::bit_cast<uint64_t>(r.grad_norm));
    }
    if (!folder.empty()) {
      trainer.save();
      finish_saves();
    }
    for (const NamedTensor& p : model->named_parameters()) {
      const Tensor whole =
          p.tensor.redistribute(rt.mesh({{"all", mesh.num_ranks()}}), {})
              .local();
      if (rt.rank() == 0)
        for (int64_t i = 0; i < whole.numel(); ++i)
          bits.push_back(std::bit_cast<uint64_t>(whole.at(i)));
    }
  });
  return bits;
}

void expect_same(const Case& c, const std::vector<uint64_t>& want,
                 int64_t steps = 3) {
  const std::vector<uint64_t> got = trained(c, steps);
  ASSERT_EQ(got.size(), want.size()) << c.text();
  size_t differ = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;)
    if (got[i] != want[i]) ++differ, first = i;
  EXPECT_EQ(differ, 0u) << c.text() << ": of " << got.size()
                        << " numbers, the first is " << first << ", "
                        << std::bit_cast<double>(got[first]) << " and "
                        << std::bit_cast<double>(want[first]);
}

TEST(Reproducible, TrainingsHaveTheBitsOfOneRank) {
  for (const char* model : {"gpt", "llama"})
    for (DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      Case c{.model = model, .dtype = t};
      const std::vector<uint64_t> want = trained(c);
      for (const auto& [mesh, stage] : {std::pair{"dp=2", 0},
                                        {"dp=3", 1},
                                        {"dp=5", 2},
                                        {"dp=12", 0},
                                        {"dp=4", 3},
                                        {"fsdp=2,dp=2", 3}}) {
        c.mesh = mesh;
        c.stage = stage;
        expect_same(c, want);
      }
    }
}

// Without the option, the first of these meshes changes a bit.
TEST(Reproducible, OtherTrainingsHaveOtherBits) {
  const Case one{}, three{.mesh = "dp=3"};
  EXPECT_NE(trained(one, 3, false), trained(three, 3, false));
}

TEST(Reproducible, MicroBatchesChangeNoBitOfTheParameters) {
  const auto parameters = [](std::vector<uint64_t> bits) {
    // Losses are means of means, so the first numbers may differ.
    for (size_t i = 0; i < 6; i += 2) bits[i] = 0;
    return bits;
  };
  for (const char* model : {"gpt", "llama"}) {
    Case c{.model = model, .rows = 16};
    const std::vector<uint64_t> want = parameters(trained(c));
    for (const auto& [mesh, most] : {std::pair{"dp=1", 0},
                                     {"dp=2", 3},
                                     {"dp=3", 3},
                                     {"pp=2", 0},
                                     {"pp=2,dp=2", 3}})
      for (int64_t micros : {2, 8})
        for (int stage = 0; stage <= most; ++stage) {
          c.mesh = mesh;
          c.micro_batches = micros;
          c.stage = stage;
          EXPECT_TRUE(parameters(trained(c)) == want) << c.text();
        }
  }
}

// The parts of a rank begin and end at leaves, 8 pieces of 128 tokens, or the
// gradients of weights move tokens first.
TEST(Reproducible, SequencesMayBeSplit) {
  for (const char* model : {"gpt", "llama"})
    for (int64_t seq : {1024, 330, 8}) {
      Case c{.model = model, .rows = 2, .seq = seq};
      const std::vector<uint64_t> want = trained(c, 2);
      for (const char* mesh : {"cp=2", "cp=4", "dp=2,cp=2"}) {
        c.mesh = mesh;
        expect_same(c, want, 2);
      }
    }
}

// 384 features are three leaves, and 1,536 or 1,024 twelve or eight. A head has
// 64 features, so that a leaf has two heads.
TEST(Reproducible, FeaturesMayBeSplit) {
  for (const char* model : {"gpt", "llama"})
    for (DType t : {DType::kF32, DType::kBF16}) {
      Case c{.model = model,
             .dtype = t,
             .rows = 6,
             .hidden = 384,
             .heads = 6,
             .kv_heads = std::string(model) == "llama" ? 3 : 0,
             .vocab = 300};
      const std::vector<uint64_t> want = trained(c, 2);
      for (const auto& [mesh, stage, sequence] : {std::tuple{"tp=2", 0, false},
                                                  {"tp=3", 0, true},
                                                  {"tp=5", 0, false},
                                                  {"dp=2,tp=2", 3, true},
                                                  {"cp=2,tp=2", 0, false},
                                                  {"pp=2,tp=3", 0, false}}) {
        c.mesh = mesh;
        c.stage = stage;
        c.sequence_parallel = sequence;
        expect_same(c, want, 2);
      }
    }
}

// The queries of two ranks have the same head of keys. A rank then gets all of
// these queries.
TEST(Reproducible, HeadsOfKeysMayBeShared) {
  Case c{.model = "llama", .rows = 2, .seq = 130, .hidden = 256, .heads = 4};
  for (const int64_t kv_heads : {1, 2}) {
    c.kv_heads = kv_heads;
    c.mesh = "dp=1";
    const std::vector<uint64_t> want = trained(c, 2);
    for (const char* mesh :
         {"tp=2", "tp=3", "tp=4", "dp=2,tp=2", "cp=2,tp=2", "tp=2,cp=3"}) {
      c.mesh = mesh;
      expect_same(c, want, 2);
    }
  }
}

// Tokens travel to their experts. 130 tokens are two leaves.
TEST(Reproducible, ExpertsMayBeSplit) {
  for (DType t : {DType::kF32, DType::kBF16})
    for (int64_t seq : {8, 130}) {
      Case c{.model = "mixtral", .dtype = t, .seq = seq, .vocab = 40};
      const std::vector<uint64_t> want = trained(c, 2);
      for (const auto& [mesh, stage] : {std::pair{"dp=3", 0},
                                        {"ep=2", 0},
                                        {"ep=5", 0},
                                        {"dp=2,ep=3", 3},
                                        {"cp=2", 0},
                                        {"ep=2,tp=2", 0}}) {
        c.mesh = mesh;
        c.stage = stage;
        expect_same(c, want, 2);
      }
    }
}

// Draws what a mesh and a batch may be. With --gtest_shuffle and
// --gtest_repeat=N, each repetition draws others.
TEST(Reproducible, RandomCombinations) {
  std::mt19937 random(
      static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed()));
  const auto below = [&](size_t n) { return random() % n; };
  const auto one_of = [&](auto... x) {
    const std::array all{x...};
    return all[below(all.size())];
  };
  for (int i = 0; i < 25; ++i) {
    Case c;
    c.model = one_of("gpt", "llama", "qwen3", "gemma2", "mixtral");
    c.dtype = one_of(DType::kF32, DType::kBF16, DType::kF16);
    const bool split_sequence = below(4) == 0;
    c.seq = split_sequence ? one_of(512, 130) : one_of(5, 8, 130, 128);
    c.rows = split_sequence ? 2 : 4 * one_of(1, 2, 3, 5);
    const bool split_features = below(3) == 0;
    if (split_features) {
      c.hidden = 256;
      c.heads = 4;
      c.vocab = one_of(17, 300, 512);
    }
    // No exact sums of f64: see RefusesToSplitSumsOfF64.
    const bool experts = c.model == "mixtral";
    if (!split_features && !experts && below(5) == 0) c.dtype = DType::kF64;
    const int64_t steps = one_of(2, 2, 2, 2, 20);
    if (c.model != "gpt" && split_features) c.kv_heads = one_of(0, 1, 2);
    const std::vector<uint64_t> want = trained(c, steps);
    int64_t dp = one_of(1, 2, 3, 5);
    // Gradients of f64 are rounded in each micro-batch.
    c.micro_batches = c.dtype == DType::kF64 ? 1 : one_of(1, 2);
    c.mesh = fmt::format("dp={}", dp);
    if (split_sequence)
      c.mesh += ",cp=2";
    else if (below(3) == 0)
      c.mesh = fmt::format("pp=2,dp={}", dp);
    else if (below(2) == 0)
      c.mesh += experts ? ",ep=2" : ",fsdp=2";
    if (split_features && dp < 5) {
      c.mesh += fmt::format(",tp={}", one_of(2, 3, 4));
      c.sequence_parallel = !split_sequence && below(2) == 0;
    }
    c.stage = one_of(0, 1, 2, 3);
    std::vector<uint64_t> got = trained(c, steps);
    if (c.micro_batches > 1)  // the losses are means of means
      for (size_t k = 0; k < 2 * size_t(steps); k += 2) got[k] = want[k];
    EXPECT_TRUE(got == want) << c.text() << ", " << steps << " steps";
  }
}

TEST(Reproducible, ATrainingGoesOnOnAnotherMesh) {
  const std::string folder = ::testing::TempDir() + "/reproducible";
  std::filesystem::remove_all(folder);
  Case c{.model = "llama"};
  const std::vector<uint64_t> whole = trained(c, 4);
  c.mesh = "dp=2";
  c.stage = 3;
  trained(c, 2, true, folder);
  c.mesh = "dp=3";
  c.stage = 1;
  const std::vector<uint64_t> rest = trained(c, 2, true, folder);
  // Without the losses and norms of the first two steps.
  EXPECT_TRUE(std::vector(whole.begin() + 4, whole.end()) == rest);
}

TEST(Reproducible, SumsOfSeveralLeaves) {
  for (const char* model : {"gpt", "llama"}) {
    Case c{.model = model, .rows = 5, .seq = 300, .hidden = 300};
    const std::vector<uint64_t> want = trained(c, 2);
    for (const char* mesh : {"dp=2", "dp=3"}) {
      c.mesh = mesh;
      expect_same(c, want, 2);
    }
  }
}

// The logits of a text, alone and among others.
TEST(Reproducible, ATextHasTheSameLogitsInACrowd) {
  RunOptions options;
  options.reproducible = true;
  for (DType t : {DType::kF32, DType::kBF16})
    for (int64_t seq : {7, 150})
      run(options, [&](Runtime& rt) {
        const Mesh mesh = rt.mesh({{"dp", 1}});
        const ModelConfig config{.name = "llama",
                                 .layers = 2,
                                 .hidden = 300,
                                 .heads = 3,
                                 .seq = seq,
                                 .vocab = 17,
                                 .dtype = t};
        const auto model = make_model(config, mesh);
        const NoGrad no_grad;
        const DistTensor texts = randint(0, 17, {40, seq}, mesh);
        const Tensor all = model->logits(texts).local();
        for (const auto& [lo, hi] : {std::pair{0, 1}, {3, 4}, {10, 27}}) {
          const Tensor some = model->logits(slice(texts, 0, lo, hi)).local();
          const Tensor want = all.slice(0, lo, hi);
          for (int64_t i = 0; i < some.numel(); ++i)
            ASSERT_EQ(some.at(i), want.at(i)) << lo << " " << i;
        }
      });
}

// --- Texts that are continued ------------------------------------------------

void in_reproducible_run(const std::string& mesh,
                         const std::function<void(const Mesh&)>& body) {
  const Mesh m = Mesh::parse(mesh);
  RunOptions options;
  options.world = m.num_ranks();
  options.reproducible = true;
  run(options, [&](Runtime&) { body(m); });
}

constexpr int64_t kVocab = 300;

// 256 features are two leaves, and each has two heads.
ModelConfig text_config(const std::string& model, DType t) {
  return {.name = model,
          .layers = 2,
          .hidden = 256,
          .heads = 4,
          .kv_heads = model == "gpt" ? 0 : 2,
          .seq = 200,
          .vocab = kVocab,
          .dtype = t,
          .window = model == "mistral" ? 70 : 0};
}

std::vector<int64_t> text_of(int64_t n, int64_t seed) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back((seed + i * i * 7 + i / 3) % kVocab);
  return ids;
}

// The logits after each token, as a training computes them: [n, vocab].
std::vector<double> logits_of(const LanguageModel& model,
                              const std::vector<int64_t>& text) {
  const Mesh& mesh = model.mesh();
  const DistTensor tokens =
      DistTensor::from_global(Tensor::from({1, std::ssize(text)}, text.data()),
                              mesh, batch_placements(mesh));
  return onto(mesh, model.logits(tokens)).full().to_doubles();
}

// Texts that are read in chunks, beside others and behind a beginning that is
// in the cache, on any mesh.
TEST(Reproducible, ACacheGivesTheLogitsOfTheTrainer) {
  struct Read {
    size_t text;
    int64_t tokens;
  };
  std::vector<std::vector<int64_t>> texts = {text_of(190, 1), text_of(3, 2),
                                             text_of(131, 3), text_of(190, 1)};
  texts[3][180] = 5;
  for (const std::string name : {"gpt", "llama", "mistral", "gemma2", "qwen3"})
    for (DType t : {DType::kF32, DType::kBF16}) {
      std::vector<std::vector<double>> want;
      in_reproducible_run("dp=1", [&](const Mesh& m) {
        const auto model = make_model(text_config(name, t), m);
        const NoGrad no_grad;
        for (const auto& text : texts) want.push_back(logits_of(*model, text));
      });
      for (const char* mesh :
           {"dp=1", "dp=2", "pp=2", "tp=2", "tp=3", "cp=2", "cp=2,tp=2"})
        in_reproducible_run(mesh, [&](const Mesh& m) {
          const auto model = make_model(text_config(name, t), m);
          const NoGrad no_grad;
          KvCache cache(*model, {.tokens = 900, .page = 7, .texts = 3});
          std::vector<int64_t> numbers(texts.size(), -1);
          const auto read = [&](const std::vector<Read>& reads) {
            std::vector<CacheStep::Part> parts;
            std::vector<std::pair<size_t, int64_t>> rows;  // text, position
            for (const auto& [i, n] : reads) {
              if (numbers[i] < 0)
                numbers[i] = cache.add(std::ssize(texts[i]), texts[i]);
              const int64_t at = cache.length(numbers[i]);
              parts.push_back(
                  {.text = numbers[i],
                   .tokens = {texts[i].begin() + at, texts[i].begin() + at + n},
                   .wanted = false,
                   .scored = true});
              for (int64_t p = at; p < at + n; ++p) rows.push_back({i, p});
            }
            const CacheStep step = cache.step(parts);
            const std::vector<double> got =
                onto(m, model->decode(step, cache)).full().to_doubles();
            for (size_t r = 0; r < rows.size(); ++r) {
              const auto [i, p] = rows[r];
              for (size_t e = 0; e < kVocab; ++e)
                ASSERT_EQ(got[r * kVocab + e],
                          want[i][static_cast<size_t>(p) * kVocab + e])
                    << name << " " << dtensor::name(t) << " on " << mesh
                    << ", text " << i << " at " << p;
            }
          };
          read({{0, 1}});
          read({{0, 90}, {1, 2}, {2, 60}});
          read({{2, 1}, {1, 1}, {0, 1}});
          read({{0, 98}});
          for (int64_t n : {1, 33, 2, 34}) read({{2, n}});
          numbers[3] = cache.add(190, texts[3]);
          EXPECT_GE(cache.length(numbers[3]), 175) << name;
          read({{3, 190 - cache.length(numbers[3])}});
        });
    }
}

// Tokens that are drawn at temperature 1, and their logprobs.
TEST(Reproducible, TextsGoOnInTheSameWay) {
  using Drawn = std::vector<std::pair<int64_t, double>>;
  // The third prompt begins as the first.
  const std::vector<std::vector<int64_t>> prompts = {
      text_of(70, 1), text_of(2, 5), text_of(90, 1), text_of(33, 9)};
  const Sampling sampling{.temperature = 1, .seed = 3};
  const auto to = [](Drawn& drawn) {
    return [&drawn](const DrawnToken& t) {
      drawn.emplace_back(t.id, t.logprob);
      return true;
    };
  };
  for (const char* name : {"gpt", "llama"})
    for (DType t : {DType::kF32, DType::kBF16}) {
      std::vector<Drawn> want(prompts.size());
      in_reproducible_run("dp=1", [&](const Mesh& m) {
        const auto model = make_model(text_config(name, t), m);
        for (size_t i = 0; i < prompts.size(); ++i)
          generate(*model, {.tokens = 20,
                            .prompt = prompts[i],
                            .sampling = sampling,
                            .on_token = to(want[i]),
                            .cache = false});
      });
      for (const char* mesh :
           {"dp=1", "dp=2", "tp=2", "pp=2", "pp=2,tp=2", "cp=3", "tp=2,cp=2"})
        in_reproducible_run(mesh, [&](const Mesh& m) {
          const auto model = make_model(text_config(name, t), m);
          Engine engine(*model, {.texts = 3, .page = 8, .chunk = 16});
          std::vector<Drawn> got(prompts.size());
          for (size_t i = 0; i < prompts.size(); ++i)
            engine.add({.prompt = prompts[i],
                        .tokens = 20,
                        .sampling = sampling,
                        .logprobs = true,
                        .on_token = to(got[i])});
          while (engine.step()) {
          }
          for (size_t i = 0; i < prompts.size(); ++i)
            EXPECT_EQ(got[i], want[i]) << name << " " << dtensor::name(t)
                                       << " on " << mesh << ", text " << i;
          EXPECT_GE(engine.cached_tokens(), 64);
        });
    }
}

// Reinforcement learning: an engine draws texts on one mesh, a trainer on
// another one takes a step, and the engine takes its parameters. In each of the
// rounds, the trainer's logits give the tokens and logprobs that were drawn.
TEST(Reproducible, ATrainerHasTheLogprobsOfAnEngine) {
  constexpr int64_t kRounds = 50, kTexts = 4, kTokens = 6, kSeq = 3 + kTokens;
  in_reproducible_run("dp=2,tp=2", [&](const Mesh& training) {
    ModelConfig config = text_config("llama", DType::kF32);
    config.seq = kSeq;
    const Mesh answering({{"tp", 3}});
    const auto trained = make_model(config, training);
    const auto model = make_model(config, answering);
    AdamW optimizer(trained->named_parameters());
    std::optional<Engine> engine;
    const int64_t rank = RankContext::current().world_rank;
    if (answering.contains(rank)) engine.emplace(*model, EngineOptions{});
    for (int64_t round = 0; round < kRounds; ++round) {
      std::vector<int64_t> texts;
      std::vector<double> logprobs;
      const auto sampling = [&](int64_t text) {
        return Sampling{.temperature = 1,
                        .seed = static_cast<uint64_t>(round * kTexts + text)};
      };
      for (int64_t i = 0; engine && i < kTexts; ++i) {
        std::vector<int64_t> text = text_of(3, 1 + i);
        engine->add({.prompt = text,
                     .tokens = kTokens,
                     .sampling = sampling(i),
                     .logprobs = true,
                     .on_token = [&](const DrawnToken& t) {
                       text.push_back(t.id);
                       logprobs.push_back(t.logprob);
                       return true;
                     }});
        while (engine->step()) {
        }
        texts.insert(texts.end(), text.begin(), text.end());
      }
      texts.resize(kTexts * kSeq);
      logprobs.resize(kTexts * kTokens);
      const auto from_first = [](auto& list) {
        const size_t bytes = list.size() * sizeof(list[0]);
        const std::string all = all_gather_bytes(
            "texts", 0, {reinterpret_cast<const char*>(list.data()), bytes})[0];
        std::memcpy(list.data(), all.data(), bytes);
      };
      from_first(texts);
      from_first(logprobs);
      const DistTensor tokens =
          DistTensor::from_global(Tensor::from({kTexts, kSeq}, texts.data()),
                                  training, batch_placements(training));
      const DistTensor logits = trained->logits(tokens);
      const std::vector<double> rows = logits.full().to_doubles();
      const auto vocab = static_cast<size_t>(config.vocab);
      for (int64_t i = 0; i < kTexts; ++i)
        for (int64_t k = 0; k < kTokens; ++k) {
          const std::span<const int64_t> text(&texts[size_t(i * kSeq)],
                                              size_t(3 + k));
          const auto row = size_t(i * kSeq + 2 + k);
          const DrawnToken drawn =
              draw({&rows[row * vocab], vocab}, sampling(i), text, 3, k);
          ASSERT_EQ(drawn.id, *text.end()) << "round " << round;
          ASSERT_EQ(drawn.logprob, logprobs[size_t(i * kTokens + k)])
              << "round " << round << ", text " << i << ", token " << k;
        }
      const DistTensor loss = cross_entropy(logits, tokens);
      optimizer.step(grad(loss, trained->parameters()), {.lr = 1e-3});
      if (engine)
        engine->update(trained->named_parameters());
      else
        assign(model->named_parameters(), trained->named_parameters());
    }
  });
}

TEST(Reproducible, RefusesToSplitSumsOfF64) {
  for (const auto& [model, mesh] : {std::pair{"gpt", "tp=2"},
                                    {"llama", "dp=2,tp=3"},
                                    {"mixtral", "ep=2"}}) {
    const std::string e = error_of(
        [&] { trained({.model = model, .mesh = mesh, .dtype = DType::kF64}); });
    EXPECT_NE(e.find("no exact sums of f64"), std::string::npos) << e;
  }
}

TEST(Reproducible, RefusesPartialSumsOfFloats) {
  RunOptions options;
  options.world = 2;
  options.reproducible = true;
  RunOptions on_device = options;
  on_device.device = [](int64_t) -> Device& { return cpu(); };
  EXPECT_NE(error_of([&] {
              run(on_device, [](Runtime&) {});
            }).find("a reproducible run computes on the CPU"),
            std::string::npos);
  run(options, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 2}});
    const DistTensor part = DistTensor::from_local(
        Tensor::full({3}, DType::kF32, 1), mesh, "P", {3});
    EXPECT_NE(error_of([&] {
                part.redistribute(mesh, {});
              }).find("in an order that depends on the mesh"),
              std::string::npos);
    const DistTensor x = randn({400, 3}, mesh, {{"dp", Shard(0)}}),
                     w = randn({2, 3}, mesh, {}).set_requires_grad();
    EXPECT_NE(error_of([&] {
                grad(sum(linear(x, w)), {w}, {.wire_dtype = DType::kBF16});
              }).find("leave it out"),
              std::string::npos);
    // A ring adds the gradients of keys in the order in which they pass.
    const DistTensor q =
        randn({1, 256, 2, 64}, mesh, {{"dp", Shard(1)}}).set_requires_grad();
    EXPECT_NE(
        error_of([&] {
          grad(sum(attention(q, q, q, {.context = ContextParallel::kRing})),
               {q});
        }).find("in an order that depends on the mesh"),
        std::string::npos);
  });
}

}  // namespace
}  // namespace dtensor::nn
