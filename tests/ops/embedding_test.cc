// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include "dtensor/dtensor.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

Array reference(const Array& table, const Array& ids) {
  const int64_t v = table.shape[0], h = table.shape[1];
  Shape shape = ids.shape;
  shape.push_back(h);
  Array out = zeros_like(shape);
  for (int64_t i = 0; i < numel(ids.shape); ++i) {
    const auto id = static_cast<int64_t>(ids.at(i));
    for (int64_t j = 0; j < h; ++j)
      out.at(i * h + j) = id >= 0 && id < v ? table.at(id * h + j) : 0;
  }
  return out;
}

Problem problem(int64_t v, int64_t h, const Array& ids) {
  return {{values({v, h}, 1), ids},
          [](const auto& x) {
            return embedding(x[0], x[1], {.zeros_outside = true});
          },
          [](const auto& x) { return reference(x[0], x[1]); },
          false};
}

// 5 is used often, 2 never; -1 and 7 name no row.
const Array kIds = integers({2, 5}, {5, 0, 3, 5, 6, 1, -1, 5, 7, 4});

TEST(EmbeddingTest, Layouts) {
  const std::vector<Case> cases = {
      {"x=2", {"R", "R"}},         {"x=2", {"S0", "R"}},
      {"x=3", {"S0", "R"}},        {"x=2", {"S1", "R"}},
      {"x=2", {"R", "S0"}},        {"x=2", {"R", "S1"}},
      {"x=2", {"S0", "S1"}},       {"x=2", {"P", "R"}},
      {"x=2,y=2", {"S0,S1", "R"}}, {"x=2,y=2", {"R,S0", "S0,R"}},
      {"x=2,y=3", {"S0,S0", "R"}}, {"x=2,y=2", {"S0,P", "R"}}};
  check_problem(problem(7, 3, kIds), cases);
  Array narrow = kIds;
  narrow.dtype = DType::kI32;
  check_problem(problem(7, 3, narrow), {{"x=2", {"S0", "R"}}});
}

// A rank that holds two ranges of the rows, of different sizes.
TEST(EmbeddingTest, RowsInTwoRanges) {
  on_mesh("x=2", [](const Mesh& mesh) {
    Layout l;
    const Split halves = Split::over({0});
    l.dims = {Dim::concat({Dim(2, halves), Dim(5, halves)}), Dim(3)};
    const Array table = values({7, 3}, 1);
    const DistTensor split = put(table, mesh).redistribute(mesh, l);
    EXPECT_EQ(split.region()[0].size(), 2u);
    const DistTensor y =
        embedding(split, put(kIds, mesh), {.zeros_outside = true});
    expect_near(array_of(y.full()), reference(table, kIds), 1e-12, "value");
  });
}

TEST(EmbeddingTest, EmptyParts) {
  check_problem(problem(2, 1, integers({2}, {1, 0})),
                {{"x=3", {"S0", "R"}},
                 {"x=3", {"S1", "S0"}},
                 {"x=2,y=3", {"S0,R", "R,S0"}}});
  check_problem(problem(1, 3, integers({}, {0})), {{"x=2", {"S0", "R"}}});
}

// Second derivatives: the function is linear, so mixed with a square.
TEST(EmbeddingTest, SecondOrder) {
  Problem p = problem(7, 3, kIds);
  p.function = [](const auto& x) {
    return exp(embedding(x[0], x[1], {.zeros_outside = true}));
  };
  p.reference = [](const auto& x) {
    Array y = reference(x[0], x[1]);
    for (double& v : y.v) v = std::exp(v);
    return y;
  };
  p.second_order = true;
  check_problem(p, {{"x=2", {"S0", "R"}},
                    {"x=2", {"S1", "R"}},
                    {"x=2,y=2", {"R,S0", "S0,R"}}});
}

TEST(EmbeddingTest, Types) { check_types(problem(7, 3, kIds), {"S0", "R"}); }

// A table whose rows are split is looked up without any of it being sent: the
// result is a partial sum.
TEST(EmbeddingTest, SplitRowsGiveAPartialSum) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    DistTensor table = put(values({7, 3}, 1), mesh, "S0").as_parameter();
    rt.context().record = true;
    DistTensor y = embedding(table, put(kIds, mesh), {.zeros_outside = true});
    EXPECT_EQ(y.spec()->to_string(), "f64[2, 5, 3](P)");
    auto g = grad(y, {table}, {.cotangent = put(values({2, 5, 3}, 2), mesh)});
    EXPECT_TRUE(rt.context().events.empty());
    EXPECT_EQ(g[0].spec()->to_string(), "f64[7, 3](S0)");
  });
}

TEST(EmbeddingTest, SumsOfBf16AreInF32) {
  // 1 + 1000 / 1024 in steps that bf16 cannot add to 1.
  on_mesh("x=1", [](const Mesh& mesh) {
    const int64_t n = 1000;
    DistTensor table =
        put(values({1, 1}, 1), mesh, "", DType::kBF16).set_requires_grad();
    DistTensor y = embedding(table, put(zeros_like({n}, DType::kI64), mesh));
    Array dy = zeros_like({n, 1});
    for (double& v : dy.v) v = 1.0 / 1024;
    dy.at(0) = 1;
    auto g = grad(y, {table}, {.cotangent = put(dy, mesh, "", DType::kBF16)});
    EXPECT_NEAR(g[0].item(), 1 + 999.0 / 1024, 1.0 / 128);
  });
}

TEST(EmbeddingTest, Errors) {
  EXPECT_EQ(
      error_of(2,
               [](const Mesh& m) {
                 embedding(put(values({2, 3}, 1), m), put(values({3}, 1), m));
               }),
      "[embedding] the ids are f64, but must be i32 or i64; write "
      "cast(ids, DType::kI64)");
}

// The bytes that fn() sends; those of checks are not counted.
template <class Fn>
int64_t sent(Fn&& fn) {
  RankContext& context = RankContext::current();
  context.record = true;
  context.events.clear();
  fn();
  int64_t bytes = 0;
  for (const CommEvent& e : context.events) bytes += e.counted;
  return bytes;
}

// A rank looks up, or sums, the indices in its own range without another rank's
// part.
TEST(Indexing, SplitDimensionsSendNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put(values({4, 7}, 1), mesh, "S1").as_parameter();
    const DistTensor index =
        put(integers({4, 2}, {0, 6, 3, 3, 5, 4, 1, 2}), mesh);
    const DistTensor rows = put(integers({3}, {6, 0, 3}), mesh);
    EXPECT_EQ(sent([&] {
                EXPECT_EQ(gather(x, 1, index).spec()->to_string(),
                          "f64[4, 2](P)");
                EXPECT_EQ(index_select(x, 1, rows).spec()->to_string(),
                          "f64[4, 3](P)");
                const DistTensor two = put(values({4, 2}, 2), mesh);
                for (const DistTensor& y :
                     {scatter_add(x, 1, index, two), scatter(x, 1, index, two),
                      scatter(x, 1, index, 0.5),
                      index_add(x, 1, rows, put(values({4, 3}, 2), mesh))})
                  EXPECT_EQ(y.spec()->to_string(), "f64[4, 7](S1)");
              }),
              0);
  });
}

// A rank that holds two ranges of the dimension adds up the results of both.
TEST(Indexing, TwoRangesOfTheDimension) {
  on_mesh("x=2", [](const Mesh& mesh) {
    Layout l;
    const Split halves = Split::over({0});
    l.dims = {Dim(4), Dim::concat({Dim(2, halves), Dim(5, halves)})};
    const Array table = values({4, 7}, 1),
                at = integers({4, 3}, {0, 1, 2, 6, 5, 4, 3, 3, 0, 2, 6, 1});
    const DistTensor x = put(table, mesh).redistribute(mesh, l).as_parameter();
    ASSERT_EQ(x.region()[1].size(), 2u);
    const DistTensor y = gather(x, 1, put(at, mesh));
    EXPECT_EQ(y.spec()->to_string(), "f64[4, 3](P)");
    Array want = zeros_like({4, 3});
    for (int64_t i = 0; i < 12; ++i)
      want.at(i) = table.at(i / 3 * 7 + static_cast<int64_t>(at.at(i)));
    expect_near(array_of(y.full()), want, 0, "value");
  });
}

TEST(Indexing, TheLastOfEqualIndicesWinsInEveryLayout) {
  const Array index = integers({6}, {2, 0, 2, 4, 0, 2});
  for (const char* layout : {"R,R", "S0,R", "R,S0", "S0,S0"})
    for (const char* of_x : {"R,R", "S0,R", "R,S0"})
      on_mesh("a=2,b=3", [&](const Mesh& mesh) {
        DistTensor src = put(integers({6}, {1, 2, 3, 4, 5, 6}), mesh, layout);
        DistTensor x = put(values({5}, 3), mesh, of_x);
        src = cast(src, DType::kF64).detach().set_requires_grad();
        x.set_requires_grad();
        const DistTensor y = scatter(x, 0, put(index, mesh, layout), src);
        Array want = values({5}, 3);
        want.at(0) = 5, want.at(2) = 6, want.at(4) = 4;
        expect_near(array_of(y.full()), want, 0, layout);
        const auto g = grad(sum(y), {x, src});
        expect_near(array_of(g[0].full()), {{5}, {0, 1, 0, 1, 0}}, 0, "x");
        expect_near(array_of(g[1].full()), {{6}, {0, 0, 0, 1, 1, 1}}, 0, "src");
      });
}

// Every rank throws, even if it has no part of x, or no index.
TEST(Indexing, EveryRankHearsOfABadIndex) {
  for (double bad : {3, -1})
    for (const char* of_x : {"R", "S0", "S1"})
      for (const char* layout : {"R", "S0", "S1"})
        on_mesh("x=4", [&](const Mesh& mesh) {
          const DistTensor x = put(values({3, 3}, 1), mesh, of_x),
                           i = put(integers({1, 3}, {1, bad, 0}), mesh, layout),
                           src = put(values({1, 3}, 2), mesh, of_x);
          const std::string range = fmt::format(
              "index {} is not in [0, 3), the indices of dimension 1 of the "
              "tensor; pass indices in that range",
              bad);
          EXPECT_EQ(error_of([&] { gather(x, 1, i); }), "[gather] " + range);
          EXPECT_EQ(error_of([&] { scatter_add(x, 1, i, src); }),
                    "[scatter_add] " + range);
          EXPECT_EQ(error_of([&] { scatter(x, 1, i, src); }),
                    "[scatter] " + range);
        });
}

TEST(Indexing, Errors) {
  const auto error = [](auto fn) {
    return error_of(2, [&](const Mesh& m) {
      fn(put(values({3, 4}, 1), m, "S1"),
         put(integers({1, 2}, {1, 4}), m, "S1"));
    });
  };
  const std::string range =
      "index 4 is not in [0, 4), the indices of dimension 1 of the tensor; "
      "pass indices in that range";
  EXPECT_EQ(error([](const auto& x, const auto& i) { gather(x, 1, i); }),
            "[gather] " + range);
  EXPECT_EQ(
      error([](const auto& x, const auto& i) { scatter_add(x, 1, i, x); }),
      "[scatter_add] " + range);
  EXPECT_EQ(error([](const auto& x, const auto& i) { scatter(x, -1, i, 2); }),
            "[scatter] " + range);
  EXPECT_EQ(error([](const auto& x, const auto& i) {
              index_select(x, 1, select(i, 0, 0));
            }),
            "[index_select] " + range);
  EXPECT_EQ(error([](const auto& x, const auto& i) {
              index_add(x, 1, select(i, 0, 0), narrow(x, 1, 0, 2));
            }),
            "[index_add] " + range);
  EXPECT_EQ(error([](const auto& x, const auto& i) {
              gather(x, 1, select(i, 0, 0));
            }),
            "[gather] the indices i64[2](S0) and the tensor f64[3, 4](S1) have "
            "different numbers of dimensions; pass indices with as many as the "
            "tensor");
}

// A lookup in a table was priced as if it read the whole table, and computed
// with every row of it for every index.

// The price of the operator of this name in fn(), where a byte takes 1 ps.
template <class Fn>
int64_t work_ps(const char* op, Fn&& fn) {
  RunOptions options;
  options.dry_run = true;
  options.cost.ps_per_local_byte = 1;
  options.cost.ps_per_flop = 10;
  int64_t ps = -1;
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 1}});
    const DistTensor table = zeros({1000, 4}, mesh),
                     ids = zeros({3}, mesh, {}, DType::kI64);
    const OnOp observe(rt.context(), [&](const OpRan& ran) {
      if (ran.op == op) ps = ran.choice.work_ps;
    });
    fn(table, ids);
  });
  return ps;
}

constexpr int64_t kIdBytes = 3 * 8, kRows = 3 * 4 * 4, kTable = 1000 * 4 * 4;

TEST(LookupPrice, ReadsTheRows) {
  EXPECT_EQ(work_ps("embedding", [](auto& t, auto& i) { embedding(t, i); }),
            kIdBytes + 2 * kRows);
  EXPECT_EQ(
      work_ps("index_select", [](auto& t, auto& i) { index_select(t, 0, i); }),
      kIdBytes + 2 * kRows);
  EXPECT_EQ(work_ps("gather",
                    [](auto& t, auto& i) {
                      gather(t, 0, expand(reshape(i, {3, 1}), {3, 4}));
                    }),
            4 * kIdBytes + 2 * kRows);
}

TEST(LookupPrice, OfItsGradientIsTheTable) {
  EXPECT_EQ(work_ps("embedding_backward",
                    [](DistTensor t, auto& i) {
                      t.set_requires_grad();
                      grad(sum(embedding(t, i)), {t});
                    }),
            kIdBytes + kRows + kTable);
}

}  // namespace
}  // namespace dtensor::testing
