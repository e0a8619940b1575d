// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/config.h"

#include <gtest/gtest.h>

#include "dtensor/nn/architecture.h"
#include "dtensor/placement/error.h"

namespace dtensor::nn {
namespace {

std::string error_of(const ModelConfig& c) {
  try {
    c.validate();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Config, Defaults) {
  ModelConfig gpt;
  EXPECT_EQ(error_of(gpt), "");
  EXPECT_EQ(gpt.head_dim(), 32);
  EXPECT_EQ(gpt.kv(), 8);
  EXPECT_EQ(gpt.ffn_size(), 1024);
  ModelConfig llama{.name = "llama", .hidden = 256};
  EXPECT_EQ(error_of(llama), "");
  EXPECT_EQ(llama.ffn_size(), 688);  // rounded up to a multiple of 8
  llama.hidden = 24;
  EXPECT_EQ(llama.ffn_size(), 64);  // 64 exactly
  llama.hidden = 4096;
  EXPECT_EQ(llama.ffn_size(), 10928);  // 10922.67
  llama.ffn = 100;
  EXPECT_EQ(llama.ffn_size(), 100);
}

TEST(Config, ErrorsSayWhatToWrite) {
  EXPECT_EQ(error_of({.name = "t5"}),
            "[model] there is no model \"t5\"; write " + architecture_names());
  EXPECT_EQ(error_of({.hidden = 100, .heads = 8}),
            "[model] hidden 100 is not a multiple of heads 8; write hidden 96 "
            "or 104");
  EXPECT_EQ(error_of({.hidden = 4, .heads = 8}),
            "[model] hidden 4 is not a multiple of heads 8; write hidden 8");
  EXPECT_EQ(error_of({.name = "llama", .hidden = 100, .heads = 8}),
            "[model] hidden 100 is not a multiple of heads 8; write hidden 96 "
            "or 112");
  EXPECT_EQ(error_of({.kv_heads = 2}),
            "[model] kv-heads is 2, but a gpt has as many kv-heads as heads "
            "(8); leave kv-heads out");
  EXPECT_EQ(error_of({.name = "llama", .kv_heads = 3}),
            "[model] heads 8 is not a multiple of kv-heads 3; write a divisor "
            "of 8 for kv-heads, such as 1");
  EXPECT_EQ(error_of({.name = "llama", .hidden = 24, .heads = 8}),
            "[model] llama rotates pairs of numbers, but the head size (hidden "
            "24 / heads 8) is 3, which is odd; write hidden 16 or 32");
  EXPECT_EQ(error_of({.name = "llama", .head_size = 15}),
            "[model] llama rotates pairs of numbers, but the head size is 15, "
            "which is odd; write an even head size");
  EXPECT_EQ(error_of({.layers = 0}),
            "[model] layers is 0; it must be at least 1");
  EXPECT_EQ(error_of({.seq = -1}), "[model] seq is -1; it must be at least 1");
  EXPECT_EQ(error_of({.ffn = -4}),
            "[model] ffn is -4; it must be at least 1, or 0 for the default");
  EXPECT_NE(error_of({.hidden = int64_t{1} << 60}), "");
  EXPECT_NE(error_of({.dtype = DType::kI32}), "");
  EXPECT_NE(error_of({.name = "llama", .rope = {.theta = -1}}), "");
  EXPECT_EQ(error_of({.name = "gemma2", .query_scalar = -1}),
            "[model] query_scalar is -1; write a positive number, or 0 for the "
            "size of a head");
  EXPECT_EQ(error_of({.name = "llama", .rope = {.dims = 34}}),
            "[model] rope.dims is 34, but numbers are rotated in pairs, and "
            "the head size is 32; write an even number from 0 (for all) to "
            "32");
  EXPECT_EQ(error_of({.name = "mistral", .window = -1}),
            "[model] the window is -1; write a number of tokens of at most "
            "268435456, or 0 for no window");
  EXPECT_NE(error_of({.name = "mistral", .window = int64_t{1} << 62}), "");
  EXPECT_EQ(error_of({.name = "gemma2", .window = 4, .windowed = {true}}),
            "[model] the size of windowed is 1, but layers is 4; give windowed "
            "one value for each layer, or none");
  EXPECT_EQ(error_of({.name = "gemma2", .attention_soft_cap = -1}),
            "[model] attention_soft_cap is -1; write a positive number, or 0 "
            "for no cap");
  EXPECT_EQ(error_of({.name = "gemma2", .logit_soft_cap = NAN}),
            "[model] logit_soft_cap is nan; write a positive number, or 0 for "
            "no cap");
  EXPECT_EQ(error_of({.name = "llama", .hidden = 100, .head_size = 16}), "");
}

TEST(Config, Experts) {
  const auto of = [](auto change) {
    ModelConfig c{.name = "mixtral"};
    change(c);
    return error_of(c);
  };
  EXPECT_EQ(of([](ModelConfig& c) { c.experts = 1; }), "");
  EXPECT_EQ((ModelConfig{.name = "mixtral", .experts = 1}).chosen_experts(), 1);
  EXPECT_EQ((ModelConfig{.name = "mixtral"}).chosen_experts(), 2);
  EXPECT_EQ(of([](ModelConfig& c) { c.experts = 2, c.top_k = 3; }),
            "[model] top-k is 3; write a number from 1 to the number of "
            "experts, 2");
  EXPECT_EQ(of([](ModelConfig& c) { c.router_loss = 1e301; }),
            "[model] the weight of the router's loss is 1e+301; write a number "
            "from 0 to 1e300");
  EXPECT_EQ(error_of({.router_loss = 0.5}),
            "[model] router_loss is 0.5, but this model is a gpt, which has no "
            "router; set router_loss to 0, or name to mixtral or qwen3-moe");
  EXPECT_EQ(of([](ModelConfig& c) {
              c.layers = 10, c.experts = 1000000;
              c.hidden = c.ffn = int64_t{1} << 20, c.heads = 1;
            }),
            "[model] 10 layers of 1000000 experts, each with three matrices "
            "1048576 x 1048576, have 3.3e+19 parameters; write sizes with "
            "fewer than 1e17");
}

}  // namespace
}  // namespace dtensor::nn
