// SPDX-License-Identifier: Apache-2.0
// Small public functions that no other test calls by name.
#include <gtest/gtest.h>

#include <cstdlib>

#include "dtensor/autograd.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/io/safetensors.h"
#include "dtensor/program/program.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "dtensor/text_file.h"

namespace dtensor {
namespace {

TEST(PublicFunctions, Replicate) {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const Placements p{{"x", Replicate()}, {"y", Shard(0)}};
  EXPECT_EQ(p.resolve(mesh, {4}).to_string(mesh), "R,S0");
}

TEST(PublicFunctions, GradEnabled) {
  run(1, [](Runtime&) {
    EXPECT_TRUE(grad_enabled());
    {
      const NoGrad off;
      EXPECT_FALSE(grad_enabled());
    }
    EXPECT_TRUE(grad_enabled());
  });
}

TEST(PublicFunctions, CallerPath) {
  setenv("BUILD_WORKING_DIRECTORY", "/somewhere", 1);
  EXPECT_EQ(caller_path("a/b"), "/somewhere/a/b");
  EXPECT_EQ(caller_path("/a/b"), "/a/b");
  EXPECT_EQ(caller_path(""), "");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(caller_path("a/b"), "a/b");
}

TEST(PublicFunctions, SafetensorsName) {
  EXPECT_EQ(safetensors_name(DType::kF32), "F32");
  EXPECT_EQ(safetensors_name(DType::kBF16), "BF16");
  EXPECT_EQ(safetensors_name(DType::kF16), "F16");
  EXPECT_EQ(safetensors_name(DType::kBool), "BOOL");
  EXPECT_EQ(safetensors_name(DType::kI8), "I8");
}

TEST(PublicFunctions, Converted) {
  run(1, [](Runtime&) {
    const double v[] = {1.5, -2, 3};
    const Tensor x = Tensor::from({3}, v), y = converted(x, DType::kF32);
    EXPECT_EQ(name(y.dtype()), "f32");
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(y.at(i), v[i]);
    EXPECT_EQ(converted(x, DType::kF64).storage(), x.storage());
  });
}

// A cotangent is split as its tensor is; sums stay partial where that is
// replicated.
TEST(PublicFunctions, CotangentSpec) {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  auto spec = [&](const char* text) {
    return Spec::get(mesh, {4, 4}, parse_layout(text, mesh, {4, 4}),
                     DType::kF32);
  };
  EXPECT_EQ(cotangent_spec(spec("S0,R"), spec("R,R")), spec("S0,R"));
  EXPECT_EQ(cotangent_spec(spec("S0,R"), spec("P,P")), spec("S0,P"));
  EXPECT_EQ(cotangent_spec(spec("R,P"), spec("S0,R")), spec("R,R"));
}

}  // namespace
}  // namespace dtensor
