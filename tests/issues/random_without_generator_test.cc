// SPDX-License-Identifier: Apache-2.0
// randn() and uniform() without a Generator gave the same numbers at every
// call, so that two weights began equal.
#include <gtest/gtest.h>

#include <vector>

#include "dtensor/ops/create.h"
#include "dtensor/runtime.h"
#include "tests/array.h"

namespace dtensor {
namespace {

using testing::values;

// What a program draws, one call after the other.
std::vector<std::vector<double>> program(const Mesh& mesh,
                                         const Placements& p) {
  return {values(randn({6}, mesh, p)),
          values(randn({6}, mesh, p)),
          values(uniform({6}, mesh, p)),
          values(uniform({6}, mesh, p)),
          values(randint(0, 1 << 30, {6}, mesh, p)),
          values(randint(0, 1 << 30, {6}, mesh, p)),
          values(dropout(ones({40}, mesh, p), 0.5)),
          values(dropout(ones({40}, mesh, p), 0.5))};
}

std::vector<std::vector<double>> on_one_rank() {
  std::vector<std::vector<double>> drawn;
  run(1, [&](Runtime& rt) { drawn = program(rt.mesh(), {}); });
  return drawn;
}

TEST(RandomWithoutGenerator, EveryCallDrawsOtherNumbers) {
  const auto drawn = on_one_rank();
  for (size_t i = 0; i < drawn.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(drawn[i], drawn[j]) << i << " " << j;
}

TEST(RandomWithoutGenerator, AlikeOnEveryMeshAndLayout) {
  const auto want = on_one_rank();
  for (const char* text : {"x=3", "x=2,y=2"}) {
    const Mesh mesh = Mesh::parse(text);
    for (const char* layout : {"R", "S0"})
      run(mesh.num_ranks(), [&](Runtime&) {
        const std::string all =
            mesh.num_axes() == 1 ? layout : std::string(layout) + ",R";
        EXPECT_EQ(program(mesh, Placements(all)), want)
            << text << " " << layout;
      });
  }
}

TEST(RandomWithoutGenerator, ManualSeed) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const auto before = values(randn({6}, mesh, "S0"));
    manual_seed(0);
    EXPECT_EQ(values(randn({6}, mesh)), before);
    manual_seed(1);
    const auto other = values(randn({6}, mesh));
    EXPECT_NE(other, before);
    manual_seed(1);
    EXPECT_EQ(values(randn({6}, mesh)), other);
    EXPECT_NE(values(randn({6}, mesh)), other);
  });
}

// A generator that is given neither advances the run's own nor shares its
// numbers.
TEST(RandomWithoutGenerator, GivenGeneratorsAreApart) {
  const auto want = on_one_rank();
  run(1, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const auto given = values(randn({6}, mesh, {}, DType::kF32, {0, 0}));
    EXPECT_EQ(values(randn({6}, mesh, {}, DType::kF32, {0, 0})), given);
    EXPECT_EQ(values(randn({6}, mesh)), want[0]);
    EXPECT_NE(given, want[0]);
  });
}

// What some ranks draw for themselves does not set them apart from the others.
TEST(RandomWithoutGenerator, SubMeshesHaveTheirOwn) {
  const auto want = on_one_rank();
  run(3, [&](Runtime& rt) {
    const Mesh first = Mesh::parse("a=2 of ranks 0,1"),
               last = Mesh::parse("a=1 of ranks 2");
    std::vector<double> mine;
    if (rt.rank() < 2)
      mine = values(randn({6}, first, "S0"));
    else
      mine = values(randn({6}, last));
    EXPECT_NE(mine, want[0]);
    EXPECT_EQ(values(randn({6}, rt.mesh(), "S0")), want[0]);
    EXPECT_EQ(values(randn({6}, rt.mesh(), "R")), want[1]);
  });
}

}  // namespace
}  // namespace dtensor
