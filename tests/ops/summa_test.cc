// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "dtensor/ops/contraction.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

Array reference(const Array& a, const Array& b) {
  const int64_t m = a.shape[0], k = a.shape[1], n = b.shape[1];
  Array c = zeros_like({m, n});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t t = 0; t < k; ++t)
        c.at(i * n + j) += a.at(i * k + t) * b.at(t * n + j);
  return c;
}

Problem problem(int64_t m, int64_t k, int64_t n, int64_t panel_bytes) {
  Problem p;
  p.inputs = {values({m, k}, 1, 0.5), values({k, n}, 2, 0.5)};
  p.function = [=](const auto& in) {
    return summa(in[0], in[1], {.panel_bytes = panel_bytes});
  };
  p.reference = [](const auto& in) { return reference(in[0], in[1]); };
  return p;
}

const std::vector<Case> kCases = {
    {"x=2,y=2", {"S0,S1", "S0,S1"}},  // SUMMA
    {"x=2,y=3", {"S0,S1", "S0,S1"}},  //
    {"x=3,y=2", {"S0,S1", "S0,S1"}},
    {"x=2,y=2", {"S0,R", "R,S1"}},              // nothing to gather
    {"x=2,y=2", {"S0,R", "R,R"}},               // y shares k
    {"x=2,y=2,z=2", {"S0,S1,R", "S0,S1,R"}},    // 2.5-D
    {"x=2,y=2,z=2", {"S0,S1,S1", "S0,S1,S0"}},  // 3-D
    {"x=2,y=2,z=2", {"S0,R,S1", "R,S1,S0"}},    //
    {"x=2,y=2", {"P,S1", "S0,P"}},              // sums
    {"x=4", {"S0", "R"}},                       // 1-D
    {"x=4", {"S1", "S0"}},                      //
    {"x=4", {"R", "S1"}},                       //
    {"x=2,y=2", {"[{x},{y}@0|1|5]", "S0,S1"}}};

TEST(SummaTest, Layouts) {
  check_problem(problem(4, 5, 7, 0), kCases);
  // Panels of one to three columns.
  for (int64_t bytes : {11 * 8, 16 * 8, 23 * 8})
    check_problem(problem(4, 5, 7, bytes), kCases);
}

TEST(SummaTest, EmptyParts) {
  check_problem(problem(1, 2, 2, 3 * 8), {{"x=3,y=2", {"S0,S1", "S0,S1"}},
                                          {"x=2,y=3", {"S0,S1", "S0,S1"}}});
  check_problem(problem(2, 0, 3, 64), {{"x=2,y=2", {"S0,S1", "S0,S1"}}});
  check_problem(problem(0, 2, 3, 64), {{"x=2,y=2", {"S0,S1", "S0,S1"}}});
}

// Compares the bytes that a rank receives with the formula of summa(). The
// backward pass receives twice as many: it gathers a and b again, and sends
// their gradients back the same way.
TEST(SummaTest, Bytes) {
  struct Layouts {
    std::string mesh, a, b;
    double copies;
  };
  for (const Layouts& at : {Layouts{"x=2,y=4", "S0,S1", "S0,S1", 1},
                            Layouts{"x=4,y=2", "S0,S1", "S0,S1", 1},
                            Layouts{"x=2,y=2,z=2", "S0,S1,R", "S0,S1,R", 2}})
    for (int64_t panel_bytes : {0, 20000}) {
      const Mesh mesh = Mesh::parse(at.mesh);
      const int64_t m = 64, k = 96, n = 32;
      run(mesh.num_ranks(), [&](Runtime& rt) {
        RankContext& ctx = rt.context();
        ctx.record = true;
        const Array a = values({m, k}, 1), b = values({k, n}, 2);
        DistTensor x = put(a, mesh, at.a), y = put(b, mesh, at.b);
        x.set_requires_grad();
        y.set_requires_grad();
        const auto counted = [&] {
          int64_t bytes = 0;
          for (const CommEvent& e : ctx.events) bytes += e.counted;
          return static_cast<double>(bytes);
        };
        const DistTensor c = summa(x, y, {.panel_bytes = panel_bytes});
        const double p = static_cast<double>(mesh.axis_size(0)),
                     q = static_cast<double>(mesh.axis_size(1));
        const double wanted = 8 / at.copies *
                              (static_cast<double>(m * k) / p * (q - 1) / q +
                               static_cast<double>(k * n) / q * (p - 1) / p);
        EXPECT_EQ(counted(), wanted) << at.mesh;
        ctx.events.clear();
        Layout whole = c.layout();
        whole.partials.clear();
        const Array dc = values({m, n}, 3);
        GradOptions options;
        options.cotangent = DistTensor::from_global(tensor_of(dc, DType::kF64),
                                                    mesh, Placements(whole));
        grad(c, {x, y}, options);
        // If several ranks have a copy, each also fetches a share of a
        // gradient's sum.
        if (at.copies == 1) {
          EXPECT_EQ(counted(), 2 * wanted) << at.mesh;
        }
      });
    }
}

// Besides a, b and the result, a rank holds only panels of a and b.
TEST(SummaTest, Memory) {
  const Mesh mesh = Mesh::parse("x=2,y=2");
  const int64_t n = 128, block = n / 2 * n / 2 * 8;
  run(4, [&](Runtime& rt) {
    const DistTensor a = put(values({n, n}, 1), mesh, "S0,S1"),
                     b = put(values({n, n}, 2), mesh, "S0,S1");
    const auto peak = [&](int64_t panel_bytes) {
      Allocator& memory = *rt.context().allocator;
      const int64_t before = memory.stats().current_bytes;
      memory.reset_peak();
      summa(a, b, {.panel_bytes = panel_bytes});
      return memory.stats().peak_bytes - before;
    };
    // Both gathered, and the result.
    EXPECT_GE(peak(0), 5 * block);
    // A panel, the sum so far, one more product, and the sum of both.
    EXPECT_LE(peak(block / 4), 3 * block + block / 2);
  });
}

// Ranks with copies share the work on a panel, even if it has fewer columns
// than there are copies. No copy takes over one column more than another.
TEST(SummaTest, NarrowPanelsAreShared) {
  const Mesh mesh = Mesh::parse("r=4,c=2");
  const int64_t n = 64, column = n * 8;
  std::array<int64_t, 8> received{};
  run(8, [&](Runtime& rt) {
    RankContext& ctx = rt.context();
    const DistTensor a = put(values({n, 4}, 1), mesh, "S1,R"),
                     b = put(values({4, n}, 2), mesh, "S0,R");
    Allocator& memory = *ctx.allocator;
    const int64_t before = memory.stats().current_bytes;
    memory.reset_peak();
    ctx.record = true;
    const DistTensor c = summa(a, b, {.panel_bytes = 2 * column});
    // A column of a, a row of b, and three results: a product, the sum, the
    // next sum.
    EXPECT_LE(memory.stats().peak_bytes - before,
              2 * column + 3 * c.local().bytes());
    for (const CommEvent& e : ctx.events)
      received[static_cast<size_t>(rt.rank())] += e.counted;
  });
  const auto [least, most] =
      std::minmax_element(received.begin(), received.end());
  EXPECT_LE(*most - *least, 2 * column);
}

TEST(SummaTest, BadInput) {
  run(4, [&](Runtime&) {
    const Mesh mesh = Mesh::parse("x=2,y=2");
    const auto matrix = [&](const Shape& shape, const char* layout) {
      return put(values(shape, 1), mesh, layout);
    };
    const DistTensor a = matrix({4, 6}, "S0,S1"), b = matrix({6, 2}, "S0,S1");
    EXPECT_EQ(error_of([&] { summa(a, a); }),
              "[summa] shapes are [4, 6] and [4, 6]; write matrices [m, k] and "
              "[k, n]");
    EXPECT_EQ(error_of([&] {
                summa(a, matrix({6, 2}, "S1,S0"));
              }),
              "[summa] the rows of f64[4, 6](S0,S1) and the columns of f64[6, "
              "2](S1,S0) are both split over x; split them over different "
              "axes");
    EXPECT_EQ(error_of([&] { summa(a, b, {.panel_bytes = 23}); }),
              "[summa] a column of f64[4, 6](S0,S1) and a row of f64[6, "
              "2](S0,S1) take 24 bytes on a rank, but panel_bytes is 23; write "
              "at least 24, or 0 (no limit)");
    EXPECT_EQ(error_of([&] { summa(a, b, {.panel_bytes = -1}); }),
              "[summa] panel_bytes is -1; write the most bytes of a panel, or "
              "0 (no limit)");
    EXPECT_EQ(summa_panels(a.spec(), b.spec(), {.panel_bytes = 24}), 6);
    EXPECT_EQ(summa_panels(a.spec(), b.spec(), {.panel_bytes = 120}), 2);
    EXPECT_EQ(summa_panels(a.spec(), b.spec()), 1);
  });
}

}  // namespace
}  // namespace dtensor::testing
