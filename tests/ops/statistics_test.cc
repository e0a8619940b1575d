// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/create.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// An empty row has no element other than 0, and none that is 0.
TEST(AnyAndAll, OfNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (const char* layout : {"R", "S0", "S1"}) {
      const DistTensor none = zeros({0, 3}, mesh, layout);
      EXPECT_EQ(array_of(any(none, {0}).full()).v,
                (std::vector<double>{0, 0, 0}))
          << layout;
      EXPECT_EQ(array_of(all(none, {0}).full()).v,
                (std::vector<double>{1, 1, 1}))
          << layout;
      EXPECT_EQ(any(none).full().at(0), 0) << layout;
      EXPECT_EQ(all(none).full().at(0), 1) << layout;
    }
    const DistTensor x = put(integers({2, 2}, {0, 0, 0, 5}), mesh, "S0");
    EXPECT_EQ(array_of(any(x, {1}).full()).v, (std::vector<double>{0, 1}));
    EXPECT_EQ(array_of(all(x, {1}).full()).v, (std::vector<double>{0, 0}));
  });
}

TEST(Bincount, CountsAndWeights) {
  const Array x = integers({6}, {3, 1, 1, 5, 3, 1});
  for (const char* layout : {"R", "S0"})
    on_mesh("x=4", [&](const Mesh& mesh) {
      const DistTensor i = put(x, mesh, layout);
      EXPECT_EQ(bincount(i).full().to_integers(),
                (std::vector<int64_t>{0, 3, 0, 2, 0, 1}));
      const DistTensor w = put({{6}, {1, 2, 3, 4, 0.5, 0.25}}, mesh, layout);
      EXPECT_EQ(array_of(bincount(i, w, 7).full()).v,
                (std::vector<double>{0, 5.25, 0, 1.5, 0, 4, 0}));
      EXPECT_EQ(bincount(narrow(i, 0, 0, 0)).size(0), 0);
    });
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       bincount(put(integers({2}, {1, -1}), m, "S0"));
                     }),
            "[index_add] index -1 is not in [0, 2), dimension 0 of the tensor");
}

}  // namespace
}  // namespace dtensor::testing
