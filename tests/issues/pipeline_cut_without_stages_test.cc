// SPDX-License-Identifier: Apache-2.0
// cut_pipeline() on a mesh without an axis for stages read the size of an axis
// that does not exist.
#include <gtest/gtest.h>

#include "dtensor/nn/pipeline_model.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(PipelineCutWithoutStages, IsRefused) {
  EXPECT_EQ(
      testing::error_of([] { nn::cut_pipeline({}, Mesh::parse("dp=2")); }),
      "[pipeline] mesh dp=2 has no axis pp for stages; make one with "
      "pp=2 or the like");
}

}  // namespace
}  // namespace dtensor
