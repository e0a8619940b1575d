// SPDX-License-Identifier: Apache-2.0
// The library, every program and the module have the same version.
#include "dtensor/version.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/programs/running.h"

namespace dtensor::testing {
namespace {

const std::string kVersion(version());

TEST(Version, IsThreeNumbers) {
  EXPECT_TRUE(
      std::regex_match(kVersion, std::regex("[0-9]+[.][0-9]+[.][0-9]+")))
      << kVersion;
}

TEST(Version, EveryProgramSaysIt) {
  for (const char* name :
       {"01_mesh", "02_placements", "03_tp_mlp", "04_dp_tp_train", "05_fsdp",
        "06_checkpoint", "07_pipeline", "08_ring_attention", "09_experts",
        "calibrate", "explain", "flight", "plan", "train"}) {
    const Ran r = run_program(name, "--version");
    EXPECT_EQ(r.code, 0) << name;
    EXPECT_EQ(r.out, std::string(name) + " (dtensor " + kVersion + ")\n");
    EXPECT_EQ(r.err, "") << name;
  }
}

TEST(Version, IsThatOfTheModule) {
  const std::string module = read_file("MODULE.bazel");
  EXPECT_NE(module.find("version = \"" + kVersion + "\",  # also in"),
            module.npos)
      << module;
}

}  // namespace
}  // namespace dtensor::testing
