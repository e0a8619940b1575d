// SPDX-License-Identifier: Apache-2.0
// The gradient of a parameter that was expanded over the batch gathered the
// cotangent of the whole batch before it summed.
#include <gtest/gtest.h>

#include "dtensor/dtensor.h"
#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// The bytes that this rank received since it recorded.
int64_t counted(const RankContext& ctx) {
  int64_t bytes = 0;
  for (const CommEvent& e : ctx.events) bytes += e.counted;
  return bytes;
}

// An all-reduce of `n` elements of f64, or what is left of one where the
// gradient stays split.
int64_t reduction(RankContext& ctx, const Mesh& mesh, const Shape& shape,
                  const char* from, const char* to) {
  const auto spec = [&](const char* text) {
    return Spec::get(mesh, shape, parse_layout(text, mesh, shape), DType::kF64);
  };
  return ctx.planner.plan(spec(from), spec(to)).bytes;
}

TEST(GradientOfExpand, SumsBeforeItSends) {
  const struct {
    const char *mesh, *parameter, *batch, *partial;
  } cases[] = {{"dp=4", "R", "S0", "P"},
               {"dp=2,tp=2", "R,R", "S0,R", "P,R"},
               {"dp=2,tp=2", "R,S0", "S0,S1", "P,S0"},
               {"dp=2,tp=2", "R,R", "S0,S0", "P,P"}};
  for (const auto& c : cases) {
    const Mesh mesh = Mesh::parse(c.mesh);
    run(4, [&](Runtime& rt) {
      RankContext& ctx = rt.context();
      const DistTensor x = randn({64, 8}, mesh, c.batch, DType::kF64);
      const DistTensor w = randn({8}, mesh, c.parameter, DType::kF64, {1, 0})
                               .set_requires_grad();
      const DistTensor y = expand(w, {64, 8}) * x;
      ctx.record = true;
      const DistTensor g = grad({y}, {x}, {w})[0];
      EXPECT_EQ(counted(ctx), reduction(ctx, mesh, {8}, c.partial, c.parameter))
          << c.parameter << " " << c.batch;
      ctx.record = false;
      // d/dw sum(w x x) = sum of x x.
      const Tensor got = g.full(), want = sum(x * x, {0}).full();
      for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(got.at(i), want.at(i), 1e-12);
    });
  }
}

}  // namespace
}  // namespace dtensor
