// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_event.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

// Softmax along the middle of [outer, n, inner].
Array reference(const Array& x, int dim, bool log) {
  int64_t outer = 1, inner = 1, n = x.shape[dim];
  for (int d = 0; d < dim; ++d) outer *= x.shape[d];
  for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  Array y = x;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      double max = -INFINITY, sum = 0;
      auto at = [&](int64_t k) { return (o * n + k) * inner + i; };
      for (int64_t k = 0; k < n; ++k) max = std::max(max, x.at(at(k)));
      for (int64_t k = 0; k < n; ++k) sum += std::exp(x.at(at(k)) - max);
      for (int64_t k = 0; k < n; ++k) {
        const double z = x.at(at(k)) - max;
        y.at(at(k)) = log ? z - std::log(sum) : std::exp(z) / sum;
      }
    }
  return y;
}

Problem problem(const Shape& shape, int dim, bool log) {
  Problem p;
  p.inputs = {values(shape, 3, 2)};
  p.function = [=](const auto& x) {
    return log ? log_softmax(x[0], dim) : softmax(x[0], dim);
  };
  p.reference = [=](const auto& x) {
    return reference(x[0], dim < 0 ? dim + shape.size() : dim, log);
  };
  return p;
}

class SoftmaxTest : public ::testing::TestWithParam<bool> {};

TEST_P(SoftmaxTest, LastDimension) {
  check_problem(problem({5, 7}, -1, GetParam()), {{"x=2", {"R"}},
                                                  {"x=2", {"S0"}},
                                                  {"x=2", {"S1"}},
                                                  {"x=3", {"S1"}},
                                                  {"x=2", {"P"}},
                                                  {"x=2,y=2", {"S0,S1"}},
                                                  {"x=2,y=2", {"S1,S1"}},
                                                  {"x=2,y=3", {"S1,S0"}},
                                                  {"x=2,y=2", {"P,S1"}}});
}

TEST_P(SoftmaxTest, EmptyParts) {
  // Two columns on three ranks: one has none of any row. Two rows: one has no
  // row.
  check_problem(problem({2, 2}, 1, GetParam()),
                {{"x=3", {"S1"}}, {"x=3", {"S0"}}, {"x=2,y=3", {"S0,S1"}}});
  check_problem(problem({1, 1}, 1, GetParam()),
                {{"x=3", {"S1"}}, {"x=2,y=2", {"S1,S1"}}});
}

TEST_P(SoftmaxTest, OtherDimensions) {
  check_problem(problem({3, 5, 2}, 1, GetParam()), {{"x=2", {"S1"}},
                                                    {"x=3", {"S2"}},
                                                    {"x=2,y=2", {"S1,S2"}},
                                                    {"x=2,y=2", {"S0,S1"}}});
  check_problem(problem({5, 3}, 0, GetParam()),
                {{"x=2", {"S0"}}, {"x=3", {"S1"}}});
  check_problem(problem({7}, 0, GetParam()), {{"x=2", {"S0"}}});
}

TEST_P(SoftmaxTest, Types) {
  check_types(problem({5, 7}, -1, GetParam()), {"S1"});
  check_types(problem({5, 7}, 0, GetParam()), {"S1"});
}

INSTANTIATE_TEST_SUITE_P(PlainAndLog, SoftmaxTest, ::testing::Bool());

TEST(SoftmaxTest, LargeAndInfiniteValues) {
  Array x{{2, 4}, {1e4, 1e4 - 1, -INFINITY, 3, 700, -700, 0, 1}, DType::kF64};
  for (const char* layout : {"R", "S1"})
    on_mesh("x=3", [&](const Mesh& mesh) {
      expect_near(array_of(softmax(put(x, mesh, layout), 1).full()),
                  reference(x, 1, false), 1e-12, layout);
      expect_near(array_of(log_softmax(put(x, mesh, layout), 1).full()),
                  reference(x, 1, true), 1e-12, layout);
    });
}

TEST(SoftmaxTest, ATransposedInput) {
  const Array x = values({7, 5}, 3);
  on_mesh("x=2", [&](const Mesh& mesh) {
    Tensor t = tensor_of(x, DType::kF64).transpose(0, 1);
    DistTensor y = DistTensor::from_global(t, mesh, "S1");
    Array want = array_of(t.to_contiguous());
    expect_near(array_of(softmax(y, 1).full()), reference(want, 1, false),
                1e-12, "S1");
  });
}

// Two numbers per row cross between the ranks, whatever the rows' length.
TEST(SoftmaxTest, SplitRowsSendTwoNumbersEach) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    DistTensor x = put(values({4, 50}, 1), mesh, "S1").set_requires_grad();
    rt.context().record = true;
    DistTensor y = softmax(x, 1);
    ASSERT_EQ(rt.context().events.size(), 2u);
    for (const CommEvent& e : rt.context().events) {
      EXPECT_EQ(name(e.kind), "all-reduce");
      EXPECT_EQ(e.op, "softmax");
      EXPECT_EQ(e.predicted, 4 * 8);
      EXPECT_EQ(e.counted, e.predicted);
    }
    rt.context().events.clear();
    grad(y, {x}, {.cotangent = put(values({4, 50}, 2), mesh, "S1")});
    ASSERT_EQ(rt.context().events.size(), 1u);
    EXPECT_EQ(rt.context().events[0].op, "softmax_backward");
    EXPECT_EQ(rt.context().events[0].counted, 4 * 8);
  });
}

TEST(SoftmaxTest, Errors) {
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       softmax(put(integers({2}, {1, 2}), m), 0);
                     }),
            "[softmax] takes f32, f64, bf16 or f16, but got i64; write "
            "cast(x, DType::kF32)");
  EXPECT_NE(
      error_of(2, [](const Mesh& m) { softmax(put(values({2}, 1), m), 1); })
          .find("[softmax]"),
      std::string::npos);
}

}  // namespace
}  // namespace dtensor::testing
