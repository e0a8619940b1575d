// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/nn/models.h"
#include "dtensor/placement/error.h"
#include "tests/nn/on_mesh.h"

namespace dtensor::nn {
namespace {

using Tokens = std::vector<int64_t>;

ModelConfig tiny(const std::string& name) {
  return {.name = name,
          .layers = 1,
          .hidden = 12,
          .heads = 3,
          .seq = 6,
          .vocab = 20,
          .dtype = DType::kF64};
}

Tokens sample(const std::string& mesh, const std::string& name,
              const GenerateOptions& options) {
  return on_mesh<Tokens>(mesh, [&](const Mesh& m) {
    return generate(*make_model(tiny(name), m, 4), options);
  });
}

TEST(Generate, TheSameTextOnEveryMesh) {
  for (const char* name : {"gpt", "llama"}) {
    const GenerateOptions options{.tokens = 15, .sampling = {.seed = 1}};
    const Tokens one = sample("dp=1", name, options);
    ASSERT_EQ(one.size(), 15u);
    for (int64_t t : one) {
      EXPECT_GE(t, 0);
      EXPECT_LT(t, 20);
    }
    for (const std::string& mesh : test_meshes())
      EXPECT_EQ(sample(mesh, name, options), one) << name << " on " << mesh;
    EXPECT_NE(sample("dp=1", name, {.tokens = 15, .sampling = {.seed = 2}}),
              one);
  }
}

TEST(Generate, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(sample("tp=2", "gpt",
                   {.tokens = 8, .sampling = {.temperature = 0, .seed = 1}}),
            sample("dp=1", "gpt",
                   {.tokens = 8, .sampling = {.temperature = 0, .seed = 2}}));
}

// A longer prompt with the same last tokens gives the same next token, so the
// padding behind the text is not seen.
TEST(Generate, OnlyTheLastTokensCount) {
  const GenerateOptions a{.tokens = 1,
                          .prompt = {1, 2, 3, 4, 5, 6},
                          .sampling = {.temperature = 0}};
  GenerateOptions b = a;
  b.prompt = {9, 9, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(sample("dp=1", "gpt", a), sample("dp=1", "gpt", b));
}

TEST(Generate, ACallbackSeesEachTokenAndEndsTheText) {
  for (const bool cache : {true, false}) {
    const GenerateOptions options{.tokens = 5, .prompt = {1}, .cache = cache};
    const Tokens all = sample("dp=1", "gpt", options);
    ASSERT_EQ(all.size(), 5u);
    for (const char* mesh : {"dp=1", "tp=3"})
      EXPECT_EQ(on_mesh<Tokens>(mesh,
                                [&](const Mesh& m) {
                                  Tokens seen;
                                  GenerateOptions o = options;
                                  o.on_token = [&](const DrawnToken& t) {
                                    EXPECT_LT(t.logprob, 0);
                                    seen.push_back(t.id);
                                    return seen.size() < 3;
                                  };
                                  const Tokens out = generate(
                                      *make_model(tiny("gpt"), m, 4), o);
                                  EXPECT_EQ(out, seen);
                                  return out;
                                }),
                Tokens(all.begin(), all.begin() + 3))
          << mesh << (cache ? " with" : " without") << " a cache";
  }
}

TEST(Generate, Errors) {
  EXPECT_THROW(sample("dp=1", "gpt", {.prompt = {}}), Error);
  EXPECT_THROW(sample("dp=1", "gpt", {.prompt = {20}}), Error);
  EXPECT_THROW(sample("dp=1", "gpt", {.sampling = {.temperature = -1}}), Error);
}

TEST(Generate, NothingIsDrawnInADryRun) {
  RunOptions options;
  options.world = 6;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const auto model = make_model(tiny("gpt"), rt.mesh({{"dp", 3}, {"tp", 2}}));
    EXPECT_EQ(generate(*model, {.tokens = 3}), Tokens(3, 0));
  });
}

}  // namespace
}  // namespace dtensor::nn
