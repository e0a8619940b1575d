// SPDX-License-Identifier: Apache-2.0
// A partial that is combined and comes back, on a dimension whose boundaries
// are listed or in a tree, so that no axis can be added to its split, or in a
// scalar: the search had no destination to measure its way to, and returned no
// step.
#include <gtest/gtest.h>

#include "dtensor/placement/plan.h"

namespace dtensor {
namespace {

TEST(FillOfListedBoundaries, ThePlanArrives) {
  Mesh mesh = Mesh::parse("2x2x2");
  const struct {
    Shape shape;
    const char *from, *to;
  } cases[] = {{{5}, "[{a0}@0|3|5] P{a2:max} P{a1}", "[{a0}@0|3|5] P{a1}"},
               {{5}, "[{a0}@0|3|5] P{a2:max} P{a1}", "[{a0}@0|3|5] P{a1:max}"},
               {{}, "[] P{a1} P{a0:max}", "R,P,R"},
               {{5, 3}, "P(min),S0(1|a=4:a),P", "S1(1|a=2:a),S0(1|a=4:a),P"},
               {{5, 3}, "S0(1|a=4:a),P,P(max)", "S0(1|a=4:a),P(max),P"}};
  for (const auto& c : cases) {
    auto spec = [&](const char* text) {
      return Spec::get(mesh, c.shape, parse_layout(text, mesh, c.shape),
                       DType::kF32);
    };
    Plan p = plan(spec(c.from), spec(c.to), {});
    ASSERT_FALSE(p.steps.empty()) << c.from << " -> " << c.to;
    EXPECT_EQ(p.steps.front().from, spec(c.from));
    EXPECT_EQ(p.steps.back().to, spec(c.to));
    for (size_t i = 1; i < p.steps.size(); ++i)
      EXPECT_EQ(p.steps[i].from, p.steps[i - 1].to);
  }
}

}  // namespace
}  // namespace dtensor
