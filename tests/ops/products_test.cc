// SPDX-License-Identifier: Apache-2.0
// Products of matrices and vectors that torch's cases (tests/conformance) lack.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/distance.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

using Values = std::vector<double>;

// As in torch, size 1 can be contracted with any size: the latter is summed.
TEST(Tensordot, ADimensionOfSizeOne) {
  const Array a{{2, 3}, {1, 2, 3, 4, 5, 6}}, b{{1, 2}, {10, 100}};
  for (const char* layout : {"R", "S0", "S1", "P"})
    on_mesh("a=3", [&](const Mesh& mesh) {
      const DistTensor x =
          put(a, mesh).redistribute(layout).detach().set_requires_grad();
      const DistTensor y =
          put(b, mesh).redistribute(layout).detach().set_requires_grad();
      // x's rows sum up to 6 and 15.
      const DistTensor right =
          tensordot(x, y, std::vector<int>{1}, std::vector<int>{0});
      EXPECT_EQ(array_of(right.full()).v, (Values{60, 600, 150, 1500}))
          << layout;
      const DistTensor left =
          tensordot(y, x, std::vector<int>{0}, std::vector<int>{1});
      EXPECT_EQ(array_of(left.full()).v, (Values{60, 150, 600, 1500}))
          << layout;
      const auto g = grad(sum(right), {x, y});
      EXPECT_EQ(array_of(g[0].full()).v, Values(6, 110)) << layout;
      EXPECT_EQ(array_of(g[1].full()).v, (Values{21, 21})) << layout;
    });
}

TEST(Tensordot, WithoutDimensionsIsTheOuterProduct) {
  const Array a{{2, 1}, {1, 2}}, b{{3}, {1, 10, 100}}, c{{}, {5}};
  on_mesh("a=2", [&](const Mesh& mesh) {
    const DistTensor x = put(a, mesh, "S0"), y = put(b, mesh, "S0"),
                     z = put(c, mesh);
    const DistTensor xy = tensordot(x, y, 0);
    EXPECT_EQ(xy.shape(), (Shape{2, 1, 3}));
    EXPECT_EQ(array_of(xy.full()).v, (Values{1, 10, 100, 2, 20, 200}));
    EXPECT_EQ(array_of(tensordot(y, z, 0).full()).v, (Values{5, 50, 500}));
    EXPECT_EQ(tensordot(z, z, 0).item(), 25);
  });
}

// The last dimensions belong together, so the first one of a matrix has none.
TEST(Kron, OfAMatrixAndAVector) {
  on_mesh("a=2", [&](const Mesh& mesh) {
    for (const char* layout : {"R", "S0"}) {
      const DistTensor x = put({{2, 2}, {1, 2, 3, 4}}, mesh, layout),
                       y = put({{3}, {5, 6, 7}}, mesh, layout);
      expect_near(array_of(kron(x, y).full()),
                  {{2, 6}, {5, 6, 7, 10, 12, 14, 15, 18, 21, 20, 24, 28}}, 0,
                  layout);
      expect_near(array_of(kron(y, x).full()),
                  {{2, 6}, {5, 10, 6, 12, 7, 14, 15, 20, 18, 24, 21, 28}}, 0,
                  layout);
    }
  });
}

// As in torch, the distance of equal vectors has the slope 0.
TEST(CDist, GradientsOfEqualVectors) {
  on_mesh("a=2", [&](const Mesh& mesh) {
    const double r = std::sqrt(2.0);
    for (const bool by_matmul : {false, true}) {
      const DistTensor x =
          put({{3, 2}, {1, 2, 3, 4, 1, 2}}, mesh, "S0").set_requires_grad();
      const DistTensor d = cdist(x, x, 2, by_matmul);
      expect_near(array_of(d.full()),
                  {{3, 3}, {0, 2 * r, 0, 2 * r, 0, 2 * r, 0, 2 * r, 0}}, 1e-12,
                  "distances");
      expect_near(array_of(grad(sum(d), {x})[0].full()),
                  {{3, 2}, {-r, -r, 2 * r, 2 * r, -r, -r}}, 1e-12, "gradient");
    }
  });
}

// A vector in front has no row in the result, and one at the end no column.
TEST(MultiDot, OfVectorsAtTheEnds) {
  const Array v{{2}, {1, 10}}, a{{2, 3}, {1, 2, 3, 4, 5, 6}},
      b{{3, 2}, {1, 0, 0, 1, 1, 1}};
  on_mesh("a=2", [&](const Mesh& mesh) {
    const DistTensor x = put(v, mesh, "S0"), y = put(a, mesh, "S0"),
                     z = put(b, mesh, "R");
    EXPECT_EQ(array_of(multi_dot({x, y, z}).full()).v, (Values{104, 115}));
    EXPECT_EQ(array_of(multi_dot({y, z, x}).full()).v, (Values{54, 120}));
    EXPECT_EQ(multi_dot({x, y, z, x}).item(), 1254);
  });
}

// As in torch, y = a W b for each row, so a and b must have the same rows.
TEST(Bilinear, RowsMustBeEqual) {
  const Array a{{2, 1, 2}, {1, 2, 3, 4}}, b{{2, 1, 1}, {10, 100}},
      one{{1, 1, 1}, {10}}, w{{1, 2, 1}, {1, -1}};
  on_mesh("a=2", [&](const Mesh& mesh) {
    const DistTensor y = bilinear(put(a, mesh), put(b, mesh), put(w, mesh));
    EXPECT_EQ(array_of(y.full()).v, (Values{-10, -100}));
  });
  EXPECT_EQ(error_of(2,
                     [&](const Mesh& mesh) {
                       bilinear(put(a, mesh), put(one, mesh), put(w, mesh));
                     }),
            "[bilinear] the inputs have shapes [2, 1, 2] and [1, 1, 1]; all of "
            "their dimensions but the last one must be equal");
}

}  // namespace
}  // namespace dtensor::testing
