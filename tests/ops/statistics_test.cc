#include "dtensor/ops/create.h"
#include "dtensor/ops/reduce.h"
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

}  // namespace
}  // namespace dtensor::testing
