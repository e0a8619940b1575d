// SPDX-License-Identifier: Apache-2.0
// Guards a fix: a target that is no class was an Error only on the ranks that
// held it. The other ranks went on, and waited for them in the next step.
#include "dtensor/ops/losses.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/dtensor/device/recording_device.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

DistTensor targets_of(const Mesh& mesh, int64_t last, const char* layout) {
  const int64_t values[] = {0, 1, -100, last};
  return DistTensor::from_global(Tensor::from({4}, values), mesh, layout);
}

TEST(BadTarget, IsAnErrorOnEveryRankAtTheSameStep) {
  for (const auto& [text, logits_at, targets_at] :
       {std::tuple{"x=2", "S0", "S0"},
        {"x=2", "R", "S0"},
        {"x=4", "S0", "S0"},
        {"x=2,y=2", "S0,S1", "S0,R"},
        {"x=2,y=2", "S0,S0", "S0,S0"}}) {
    const Mesh mesh = Mesh::parse(text);
    run(mesh.num_ranks(), [&](Runtime&) {
      const DistTensor logits = ones({4, 3}, mesh, logits_at);
      for (int64_t bad : {3, -1, 1000, -99})
        for (Reduction r :
             {Reduction::kNone, Reduction::kSum, Reduction::kMean}) {
          const DistTensor targets = targets_of(mesh, bad, targets_at);
          EXPECT_EQ(
              testing::error_of([&] { cross_entropy(logits, targets, r); }),
              fmt::format("[cross_entropy] target {} is not in [0, 3), and not "
                          "the ignore_index -100; write one of these",
                          bad));
          // No rank is a step ahead of the others.
          EXPECT_EQ(sum(ones({4}, mesh, targets_at)).item(), 4);
        }
      const DistTensor good = targets_of(mesh, 2, targets_at);
      EXPECT_NEAR(cross_entropy(logits, good).item(), std::log(3), 1e-6);
    });
  }
}

// The ranks' exchange of whether a target is bad counts as no communication.
TEST(BadTarget, AgreementIsFree) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const DistTensor logits = ones({4, 3}, mesh, "S0");
    const DistTensor targets = targets_of(mesh, 2, "S0");
    const NoComm none;
    const ExplicitOnly strict;
    EXPECT_EQ(cross_entropy(logits, targets, Reduction::kNone)
                  .layout()
                  .to_string(mesh),
              "S0");
  });
}

// On a device, a check is made when the host waits anyway. item() of an integer
// used to return without making it.
TEST(BadTarget, IsFoundByTheItemOfAnInteger) {
  const auto device = RecordingDevice::make();
  RunOptions options;
  options.world = 2;
  options.device = [&](int64_t) -> Device& { return *device; };
  run(options, [](Runtime& rt) {
    const DistTensor logits = ones({4, 3}, rt.mesh(), "S0");
    cross_entropy(logits, targets_of(rt.mesh(), 7, "S0"));
    const DistTensor count = sum(randint(1, 2, {4}, rt.mesh()));
    EXPECT_NE(
        testing::error_of([&] { count.item<int64_t>(); }).find("target 7"),
        std::string::npos);
    EXPECT_EQ(count.item<int64_t>(), 4);
  });
}

}  // namespace
}  // namespace dtensor
