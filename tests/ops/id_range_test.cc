// SPDX-License-Identifier: Apache-2.0
// An id that names no row of an embedding's table is an Error on every rank.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

// The error message on each of four ranks.
std::vector<std::string> heard(const std::vector<int64_t>& ids,
                               const std::string& table_layout,
                               const std::string& ids_layout, int64_t rows) {
  std::vector<std::string> all(4);
  RunOptions options;
  options.world = 4;
  options.mesh = "a=2,b=2";
  run(options, [&](Runtime& rt) {
    const Mesh& mesh = rt.mesh();
    const DistTensor table = ones({rows, 3}, mesh, table_layout.c_str());
    const DistTensor x = DistTensor::from_global(
        Tensor::from(Shape{std::ssize(ids)}, ids.data()), mesh,
        ids_layout.c_str());
    all[static_cast<size_t>(rt.rank())] =
        error_of([&] { (void)embedding(table, x); });
    // All ranks continue in step after the error.
    EXPECT_EQ(sum(ones({4}, mesh)).item(), 4);
  });
  return all;
}

TEST(IdsOutOfRange, AreAnErrorOnEveryRank) {
  const std::string tail =
      " is not in [0, 7), the rows of the table; for zeros write "
      "embedding(table, ids, {.zeros_outside = true})";
  for (const char* table : {"R,R", "S0,R", "S0,S0", "S1,R"})
    for (const char* ids : {"R,R", "S0,R", "R,S0", "S0,S0"}) {
      EXPECT_EQ(heard({0, 6, 7, 1, 2}, table, ids, 7),
                std::vector<std::string>(4, "[embedding] id 7" + tail));
      EXPECT_EQ(heard({0, 6, 3, 1, -1}, table, ids, 7),
                std::vector<std::string>(4, "[embedding] id -1" + tail));
      EXPECT_EQ(heard({0, 6, 3, 1, 0}, table, ids, 7),
                std::vector<std::string>(4, "no error"));
    }
  EXPECT_EQ(heard({0}, "R,R", "R,R", 0)[0].substr(0, 30),
            "[embedding] id 0 is not in [0,");
  EXPECT_EQ(heard({}, "R,R", "R,R", 0)[0], "no error");
}

}  // namespace
}  // namespace dtensor
