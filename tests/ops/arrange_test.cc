// SPDX-License-Identifier: Apache-2.0
// Functions that rearrange tensors: the shapes of results, and the bytes sent.
// tests/conformance compares values, composed_errors_test.cc tests errors.
#include <gtest/gtest.h>

#include <limits>

#include "dtensor/ops/create.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

// As in torch, atleast_3d adds dimensions of size 1 around one or two
// dimensions.
TEST(Arrange, AtLeastSoManyDimensions) {
  run(2, [](Runtime& rt) {
    const auto ones_of = [&](const Shape& shape) {
      return ones(shape, rt.mesh());
    };
    EXPECT_EQ(atleast_3d(ones_of({})).shape(), (Shape{1, 1, 1}));
    EXPECT_EQ(atleast_3d(ones_of({5})).shape(), (Shape{1, 5, 1}));
    EXPECT_EQ(atleast_3d(ones_of({4, 5})).shape(), (Shape{4, 5, 1}));
    for (const Shape& shape : {Shape{3, 4, 5}, Shape{2, 3, 4, 5}})
      EXPECT_EQ(atleast_3d(ones_of(shape)).shape(), shape);
    EXPECT_EQ(atleast_2d(ones_of({})).shape(), (Shape{1, 1}));
    EXPECT_EQ(atleast_2d(ones_of({5})).shape(), (Shape{1, 5}));
    EXPECT_EQ(atleast_2d(ones_of({4, 5})).shape(), (Shape{4, 5}));
    EXPECT_EQ(atleast_1d(ones_of({})).shape(), (Shape{1}));
    EXPECT_EQ(atleast_1d(ones_of({5})).shape(), (Shape{5}));
  });
}

TEST(Arrange, RollsInBothDirections) {
  run(2, [](Runtime& rt) {
    for (const char* layout : {"R", "S0"})
      for (const int64_t by : {-7, -2, 0, 1, 3, 5, 12}) {
        const DistTensor y = roll(arange(5, rt.mesh(), layout), {by}, {0});
        for (int64_t i = 0; i < 5; ++i)
          EXPECT_EQ(y.full().at(i), ((i - by) % 5 + 5) % 5) << by << layout;
      }
  });
}

TEST(Arrange, PadsByNoMoreThanFits) {
  run(1, [](Runtime& rt) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    const DistTensor x = ones({3}, rt.mesh());
    const std::string e = testing::error_of([&] { pad(x, {kMost, 1}); });
    EXPECT_NE(e, "no error");
    EXPECT_EQ(e.find("cut more"), e.npos) << e;
  });
}

// Every rank sends its part once, to the rank that mirrors it.
TEST(Arrange, FlipSendsEachElementOnce) {
  run(4, [](Runtime& rt) {
    const DistTensor x = arange(8, rt.mesh(), "S0");
    rt.context().record = true;
    const DistTensor y = flip(x, {0});
    EXPECT_EQ(y.spec()->to_string(), x.spec()->to_string());
    ASSERT_EQ(rt.context().events.size(), 1u);
    EXPECT_EQ(rt.context().events[0].counted, 2 * size_of(x.dtype()));
    EXPECT_EQ(y.full().at(0), 7);
  });
}

}  // namespace
}  // namespace dtensor
