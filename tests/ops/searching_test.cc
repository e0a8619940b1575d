// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/searching.h"

#include <limits>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/reduce.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

using Numbers = std::vector<double>;

TEST(SearchSorted, CountsInEachRow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Array rows{{2, 5}, {1, 2, 2, 2, 3, -1, 0, 4, 4, nan}},
      values{{2, 3}, {2, 0, nan, 4, 5, -1}};
  for (const char* layout : {"R", "S0", "S1"})
    for (const char* other : {"R", "S0", "S1"})
      on_mesh("x=4", [&](const Mesh& mesh) {
        const DistTensor x = put(rows, mesh, layout),
                         v = put(values, mesh, other);
        EXPECT_EQ(testing::values(searchsorted(x, v)),
                  (Numbers{1, 0, 5, 2, 4, 0}));
        const DistTensor right = searchsorted(x, v, {.right = true});
        EXPECT_EQ(testing::values(right), (Numbers{4, 0, 5, 4, 4, 1}));
        EXPECT_EQ(right.dtype(), DType::kI64);
      });
}

TEST(SearchSorted, TakesASorter) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put({{5}, {4, 1, 3, 0, 2}}, mesh, "S0"),
                     v = put({{2, 2}, {0, 1.5, 3, 9}}, mesh, "S0");
    const DistTensor i =
        searchsorted(x, v, {.out_int32 = true, .sorter = argsort(x)});
    EXPECT_EQ(values(i), (Numbers{0, 2, 3, 5}));
    EXPECT_EQ(i.dtype(), DType::kI32);
  });
}

// Each rank counts in its part of the boundaries; nothing is sent.
TEST(Bucketize, CountsInParts) {
  on_mesh("x=4", [](const Mesh& mesh) {
    const DistTensor edges = arange(0, 1000, 1, mesh, "S0"),
                     x = full({10, 10}, 412.5, mesh);
    CommRecord record;
    const DistTensor i = bucketize(x, edges);
    EXPECT_EQ(record.events().size(), 0u);
    EXPECT_EQ(i.spec()->to_string(), "i64[10, 10](P)");
    EXPECT_EQ(values(i), Numbers(100, 413));
  });
}

TEST(SearchSorted, Errors) {
  const auto error = [](Shape x, Shape v, DType t) {
    return error_of(2, [&](const Mesh& m) {
      searchsorted(zeros(x, m), zeros(v, m, {}, t));
    });
  };
  EXPECT_EQ(error({2, 5}, {3}, DType::kF32),
            "[searchsorted] the values f32[3](R) do not fit the sequence "
            "f32[2, 5](R); pass a vector, or a sequence that has the shape of "
            "the values except in the last dimension");
  EXPECT_EQ(error({}, {3}, DType::kF32).find("[searchsorted] the values"), 0u);
  EXPECT_EQ(error({5}, {3}, DType::kF64),
            "[searchsorted] cannot look for f64[3](R) in f32[5](R); cast both "
            "to one type, which is not bool");
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       bucketize(ones({3}, m), ones({2, 2}, m));
                     }),
            "[bucketize] the boundaries f32[2, 2](R) are not a vector; for a "
            "sequence in each row write searchsorted()");
}

}  // namespace
}  // namespace dtensor::testing
