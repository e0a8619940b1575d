// SPDX-License-Identifier: Apache-2.0
// An undefined Tensor given to from_global() ended the process; from_local()
// refused a rank outside of the mesh; item() and to_string() rounded integers;
// a loop over region()[0] dangled.
#include <gtest/gtest.h>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/create.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

Tensor integers(const Shape& shape, std::vector<int64_t> v) {
  return Tensor::from<int64_t>(shape, v.data());
}

TEST(DistTensorEdges, AnUndefinedTensorIsAnError) {
  const Mesh m = Mesh::parse("a=1");
  run(1, [&](Runtime&) {
    EXPECT_THROW(DistTensor::from_global(Tensor(), m, {}), Error);
    EXPECT_THROW(DistTensor::from_local(Tensor(), m, {}, {2}), Error);
  });
}

TEST(DistTensorEdges, APartOutsideOfTheMeshIsNone) {
  const Mesh m = Mesh::parse("a=2");
  run(3, [&](Runtime& rt) {
    const Tensor part = Tensor::full({1}, DType::kF32, 3);
    const DistTensor x = DistTensor::from_local(part, m, "S0", {2});
    EXPECT_EQ(x.here(), rt.rank() < 2);
    EXPECT_EQ(x.spec()->to_string(), "f32[2](S0)");
    const DistTensor all = x.redistribute(Mesh::parse("b=3"), "R");
    EXPECT_EQ(all.to_string(), "f32[2](R) [3, 3]");
  });
}

// Where a rank had nothing to serve, its part stayed when it left the mesh.
TEST(DistTensorEdges, WhoLeavesTheMeshKeepsNoPart) {
  const Mesh from = Mesh::parse("a=3"), to = Mesh::parse("a=2 of ranks 2,0");
  run(3, [&](Runtime& rt) {
    const DistTensor x = full({4}, 2, from), y = full({6}, 2, from, "S0");
    const SpecRef specs[] = {Spec::replicated(to, {4}, DType::kF32),
                             Spec::replicated(to, {6}, DType::kF32)};
    std::vector<DistTensor> both{x, y};
    relayout(both, specs);
    for (const DistTensor& z :
         {x.redistribute(to, "R"), x.redistribute_async(to, "R"),
          x.redistribute(to, "S0"), both[0]})
      EXPECT_EQ(z.impl()->part().defined(), rt.rank() != 1);
  });
}

// A loop over region()[0] read memory that was freed.
TEST(DistTensorEdges, TheRegionOfATemporaryLives) {
  const Mesh m = Mesh::parse("a=2");
  run(3, [&](Runtime& rt) {
    const DistTensor x = full({6, 4}, 1, m, "S0");
    if (!m.contains(rt.rank())) {
      const std::string want =
          "[region] rank 2 of the run is not in mesh a=2; call it on the ranks "
          "of that mesh only: if (mesh.contains(rt.rank()))";
      EXPECT_EQ(testing::error_of([&] { x.region(); }), want);
      EXPECT_EQ(testing::error_of([&] { x.region(0); }), want);
      return;
    }
    const int64_t first = 3 * rt.rank();
    const IntervalList rows{{first, first + 3}}, columns{{0, 4}};
    for (auto& [lo, hi] : x.region()[0]) {
      EXPECT_EQ(lo, first);
      EXPECT_EQ(hi, first + 3);
    }
    EXPECT_EQ(x.region(0), rows);
    EXPECT_EQ(x.region(-1), columns);
    EXPECT_EQ(x.region(), (Region{rows, columns}));
    EXPECT_THROW(x.region(2), Error);
  });
}

TEST(DistTensorEdges, IntegersAreExact) {
  const Mesh m = Mesh::parse("a=2");
  run(2, [&](Runtime&) {
    const int64_t large = 9007199254740993;  // 2^53 + 1
    const auto one = [&](int64_t v) {
      return DistTensor::from_global(integers({1}, {v}), m, "S0");
    };
    EXPECT_EQ(one(large).item<int64_t>(), large);
    EXPECT_EQ(one(-5).item(), -5.0);
    EXPECT_EQ(one(-5).item<int32_t>(), -5);
    EXPECT_EQ(one(large - 1).item(), 9007199254740992.0);
    EXPECT_THROW(one(large).item(), Error);
    EXPECT_THROW(one(large).item<int32_t>(), Error);
    EXPECT_THROW(one(INT64_MAX).item(), Error);
    EXPECT_EQ(one(INT64_MAX).item<int64_t>(), INT64_MAX);
    EXPECT_TRUE(one(large).item<bool>());
    EXPECT_EQ(full({}, 0.5, m).item<float>(), 0.5f);
    EXPECT_EQ(
        DistTensor::from_global(integers({3}, {16777217, large, -7}), m, {})
            .to_string(),
        "i64[3](R) [16777217, 9007199254740993, -7]");
  });
}

}  // namespace
}  // namespace dtensor
