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
    const GenerateOptions options{.tokens = 15, .seed = 1};
    const Tokens one = sample("dp=1", name, options);
    ASSERT_EQ(one.size(), 15u);
    for (int64_t t : one) {
      EXPECT_GE(t, 0);
      EXPECT_LT(t, 20);
    }
    for (const std::string& mesh : test_meshes())
      EXPECT_EQ(sample(mesh, name, options), one) << name << " on " << mesh;
    EXPECT_NE(sample("dp=1", name, {.tokens = 15, .seed = 2}), one);
  }
}

TEST(Generate, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(sample("tp=2", "gpt", {.tokens = 8, .seed = 1, .temperature = 0}),
            sample("dp=1", "gpt", {.tokens = 8, .seed = 2, .temperature = 0}));
}

// The padding behind the text must not be seen: a longer prompt whose end is
// the same window gives the same next token.
TEST(Generate, OnlyTheLastTokensCount) {
  const GenerateOptions a{
      .tokens = 1, .temperature = 0, .prompt = {1, 2, 3, 4, 5, 6}};
  GenerateOptions b = a;
  b.prompt = {9, 9, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(sample("dp=1", "gpt", a), sample("dp=1", "gpt", b));
}

TEST(Generate, Errors) {
  EXPECT_THROW(sample("dp=1", "gpt", {.prompt = {}}), Error);
  EXPECT_THROW(sample("dp=1", "gpt", {.prompt = {20}}), Error);
  EXPECT_THROW(sample("dp=1", "gpt", {.temperature = -1}), Error);
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
