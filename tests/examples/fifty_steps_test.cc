// Fifty updates on every mesh are the same fifty updates: losses, and gradient
// norms, which AdamW would otherwise hide an error in.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/examples/running.h"

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

TEST_P(FiftySteps, Bf16StaysNearF32) {
  const Json one = train(GetParam(), "f32", "dp=1");
  for (const char* mesh : {"dp=1", "dp=2,tp=2", "tp=3"})
    EXPECT_LE(worst(train(GetParam(), "bf16", mesh)["losses"], one["losses"]),
              0.02)
        << mesh;
}

INSTANTIATE_TEST_SUITE_P(Models, FiftySteps, ::testing::Values("gpt", "llama"));

}  // namespace
}  // namespace dtensor::testing
