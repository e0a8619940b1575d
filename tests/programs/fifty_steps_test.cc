// SPDX-License-Identifier: Apache-2.0
// Fifty updates give the same losses and gradient norms on every mesh. (AdamW
// would hide an error in the size of gradients from the losses.)
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

using Json = nlohmann::json;

// Four heads: tp=3 divides neither them nor the vocabulary, and tp=6 has more
// ranks than heads.
const char* const kMeshes[] = {"dp=2",      "tp=2",      "tp=3", "tp=4",
                               "dp=2,tp=2", "dp=3,tp=2", "tp=6"};

Json train(const std::string& model, const std::string& dtype,
           const std::string& mesh) {
  const Ran r = run_program(
      "train", "--model " + model + " --dtype " + dtype + " --mesh " + mesh +
                   " --layers 2 --hidden 24 --heads 4 --seq 12 --batch 5"
                   " --steps 50 --lr 1e-3 --sample 0 --json -");
  EXPECT_EQ(r.code, 0) << mesh << "\n" << r.err;
  return Json::parse(r.out, nullptr, false);
}

double worst(const Json& a, const Json& b) {
  double most = a.size() == b.size() && a.size() == 50 ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    most =
        std::max(most, std::abs(a[i].get<double>() / b[i].get<double>() - 1));
  return most;
}

class FiftySteps : public ::testing::TestWithParam<const char*> {};

TEST_P(FiftySteps, InF64) {
  const Json one = train(GetParam(), "f64", "dp=1");
  for (const char* mesh : kMeshes) {
    const Json other = train(GetParam(), "f64", mesh);
    EXPECT_LE(worst(other["losses"], one["losses"]), 1e-11) << mesh;
    EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), 1e-10) << mesh;
  }
}

TEST_P(FiftySteps, InF32) {
  const Json one = train(GetParam(), "f32", "dp=1");
  for (const char* mesh : kMeshes) {
    const Json other = train(GetParam(), "f32", mesh);
    EXPECT_LE(worst(other["losses"], one["losses"]), 2e-5) << mesh;
    EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), 1e-4) << mesh;
  }
}

TEST_P(FiftySteps, HalvesStayNearF32) {
  const Json one = train(GetParam(), "f32", "dp=1");
  // With this scale no gradient of f16 overflows, so that no step is skipped.
  for (const char* dtype : {"bf16", "f16 --loss-scale 1024"})
    for (const char* mesh : {"dp=1", "dp=2,tp=2", "tp=3"})
      EXPECT_LE(worst(train(GetParam(), dtype, mesh)["losses"], one["losses"]),
                0.02)
          << dtype << " on " << mesh;
}

INSTANTIATE_TEST_SUITE_P(Models, FiftySteps, ::testing::Values("gpt", "llama"));

// Experts that are split over ep, and each of them over tp. There are five, so
// some ranks have more than others, and with ep=6 one rank has none.
const char* const kExpertMeshes[] = {
    "--mesh dp=2",
    "--mesh tp=3",
    "--mesh ep=2",
    "--mesh ep=3",
    "--mesh ep=6",
    "--mesh ep=2,tp=2",
    "--mesh ep=3,tp=3",
    "--mesh dp=2,ep=2",
    "--mesh dp=2,ep=3",
    "--mesh dp=2,ep=2 --zero 1",
    "--mesh dp=2,ep=2 --zero 3",
    "--mesh cp=2,ep=2",
    "--mesh tp=2,ep=3 --sequence-parallel",
    "--mesh ep=3 --recompute block",
    "--mesh ep=2 --recompute attention",
};

void compare_experts(const std::string& dtype, double loss, double norm) {
  const auto train = [&](const std::string& flags) {
    const Ran r = run_program(
        "train", "--model mixtral --experts 5 --top-k 2 --dtype " + dtype +
                     " " + flags +
                     " --layers 2 --hidden 24 --heads 4"
                     " --kv-heads 2 --ffn 31 --seq 12 --batch 5 --steps 50"
                     " --lr 1e-3 --router-loss 0.01 --sample 0 --json -");
    EXPECT_EQ(r.code, 0) << flags << "\n" << r.err;
    return Json::parse(r.out, nullptr, false);
  };
  const auto compare = [&](const Json& one, const std::string& flags) {
    const Json other = train(flags);
    EXPECT_LE(worst(other["losses"], one["losses"]), loss) << flags;
    EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), norm) << flags;
  };
  const Json one = train("--mesh dp=1");
  for (const char* flags : kExpertMeshes) compare(one, flags);
  // Each micro-batch balances its own experts.
  const Json two = train("--mesh dp=1 --accumulate 2");
  compare(two, "--mesh ep=2,tp=2 --accumulate 2");
  for (const char* flags : {"--mesh pp=2,ep=2", "--mesh pp=2,tp=2",
                            "--mesh pp=2,ep=2 --schedule zb-h1"})
    compare(two, std::string(flags) + " --micro-batches 2");
}

TEST(FiftyStepsOfExperts, InF64) { compare_experts("f64", 1e-11, 1e-10); }
TEST(FiftyStepsOfExperts, InF32) { compare_experts("f32", 2e-5, 1e-4); }

// Strategies that split what is held, recompute it, or work in several passes.
// They divide no width evenly, and with the smallest model some ranks have no
// part.
const char* const kStrategies[] = {
    "--mesh dp=2 --zero 1",
    "--mesh dp=3 --zero 1",
    "--mesh dp=4 --zero 1",
    "--mesh dp=2 --zero 2",
    "--mesh dp=3 --zero 2",
    "--mesh dp=4 --zero 2",
    "--mesh dp=2 --zero 3",
    "--mesh dp=3 --zero 3",
    "--mesh dp=4 --zero 3",
    "--mesh dp=3 --zero 3 --gather-budget 0",
    "--mesh dp=2,tp=2 --zero 3",
    "--mesh dp=2,tp=3 --zero 1",
    "--mesh dp=2,fsdp=2 --zero 3",
    "--mesh dp=2 --accumulate 3",
    "--mesh dp=2 --recompute block",
    "--mesh dp=2,tp=2 --recompute attention",
    "--mesh dp=3 --zero 3 --recompute block",
    "--mesh dp=2,fsdp=2,tp=2 --zero 3 --recompute block --accumulate 3",
    "--mesh tp=2 --sequence-parallel",
    "--mesh tp=3 --sequence-parallel",
    "--mesh cp=2 --context ring",
    "--mesh cp=3 --context ring",
    "--mesh cp=4 --context ring",
    "--mesh cp=2 --context all-to-all",
    "--mesh cp=3 --context all-to-all",
    "--mesh cp=4 --context all-to-all",
    "--mesh cp=2,tp=2 --sequence-parallel --context ring",
    "--mesh dp=2,cp=2,tp=2 --zero 1 --recompute block",
    "--mesh pp=2,cp=2 --micro-batches 2",
    "--mesh pp=2,tp=2 --sequence-parallel --schedule zb-h1",
    "--mesh pp=2,dp=2 --zero 2 --micro-batches 2",
    "--mesh pp=2,dp=2 --zero 3 --schedule zb-h1 --micro-batches 3",
};

class FiftyStepsOf : public ::testing::TestWithParam<const char*> {
 protected:
  // Eleven heads of size two, since llama needs an even size.
  Json train(const std::string& dtype, const std::string& flags,
             const std::string& sizes = "--hidden 22 --heads 11 --ffn 37") {
    const Ran r = run_program(
        "train", std::string("--model ") + GetParam() + " --dtype " + dtype +
                     " " + flags + " " + sizes +
                     " --layers 2 --seq 13 --batch 5 --steps 50 --lr 1e-3"
                     " --sample 0 --json -");
    EXPECT_EQ(r.code, 0) << flags << "\n" << r.err;
    return Json::parse(r.out, nullptr, false);
  }
  void compare(const std::string& dtype, double loss, double norm) {
    const Json one = train(dtype, "--mesh dp=1");
    for (const char* flags : kStrategies) {
      const Json other = train(dtype, flags);
      EXPECT_LE(worst(other["losses"], one["losses"]), loss) << flags;
      EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), norm) << flags;
    }
  }
};

TEST_P(FiftyStepsOf, EveryStrategyInF64) { compare("f64", 1e-11, 1e-10); }
TEST_P(FiftyStepsOf, EveryStrategyInF32) { compare("f32", 2e-5, 1e-4); }

TEST_P(FiftyStepsOf, RanksWithoutAPart) {
  const std::string tiny = "--hidden 6 --heads 3 --ffn 5";
  const Json one = train("f64", "--mesh dp=1", tiny);
  for (const char* zero : {"1", "2", "3"}) {
    const Json other =
        train("f64", std::string("--mesh dp=7 --zero ") + zero, tiny);
    EXPECT_LE(worst(other["losses"], one["losses"]), 1e-11) << zero;
    EXPECT_LE(worst(other["grad_norms"], one["grad_norms"]), 1e-10) << zero;
  }
}

// The updates are those of data parallelism bit for bit
// (tests/nn/zero_test.cc), except that the norm for clipping is summed in
// another order. bf16 enlarges that difference.
TEST_P(FiftyStepsOf, Bf16) {
  const Json dp = train("bf16", "--mesh dp=2");
  for (const char* zero : {"1", "2", "3"}) {
    const Json other = train("bf16", std::string("--mesh dp=2 --zero ") + zero);
    EXPECT_LE(worst(other["losses"], dp["losses"]), 2e-3) << zero;
  }
  EXPECT_LE(
      worst(train("bf16", "--mesh dp=2,tp=2 --zero 3 --accumulate 3")["losses"],
            train("f32", "--mesh dp=1")["losses"]),
      0.02);
}

INSTANTIATE_TEST_SUITE_P(Models, FiftyStepsOf,
                         ::testing::Values("gpt", "llama"));

}  // namespace
}  // namespace dtensor::testing
