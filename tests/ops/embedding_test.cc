// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include "dtensor/dtensor.h"
#include "dtensor/ops/create.h"
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

// Every row counts as often as its id occurs, in a reproducible run too.
TEST(EmbeddingTest, GradientsOfRowsInTwoRanges) {
  for (const bool reproducible : {false, true}) {
    RunOptions options;
    options.world = 2;
    options.reproducible = reproducible;
    run(options, [](Runtime& rt) {
      Layout l;
      const Split halves = Split::over({0});
      l.dims = {Dim::concat({Dim(2, halves), Dim(5, halves)}), Dim(3)};
      const DistTensor table =
          put(values({7, 3}, 1), rt.mesh(), "", DType::kF32)
              .redistribute(rt.mesh(), l)
              .detach()
              .as_parameter()
              .set_requires_grad();
      ASSERT_EQ(table.region()[0].size(), 2u);
      const DistTensor ids = put(kIds, rt.mesh());
      Array want = zeros_like({7, 3});
      for (double id : kIds.v)
        for (int64_t j = 0; j < 3 && id >= 0 && id < 7; ++j)
          want.at(3 * static_cast<int64_t>(id) + j) += 1;
      const DistTensor y = embedding(table, ids, {.zeros_outside = true});
      const DistTensor d = grad(sum(y), {table})[0];
      EXPECT_EQ(d.layout(), l);
      expect_near(array_of(d.full()), want, 0, "gradient");
    });
  }
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

// A rank that holds several ranges of the dimension adds up their results.
TEST(Indexing, SeveralRangesOfTheDimension) {
  on_mesh("x=2", [](const Mesh& mesh) {
    Layout l;
    const Split halves = Split::over({0});
    l.dims = {Dim(4),
              Dim::concat({Dim(2, halves), Dim(3, halves), Dim(2, halves)})};
    const Array table = values({4, 7}, 1),
                at = integers({4, 3}, {0, 1, 2, 6, 5, 4, 3, 3, 0, 2, 6, 1});
    const DistTensor x = put(table, mesh).redistribute(mesh, l).as_parameter();
    ASSERT_EQ(x.region()[1].size(), 3u);
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

// ---- index_put() ----

// A call on x [5, 4, 3]: `indices` are vectors that select from the first
// dimensions; `values` has the shape of the selected elements.
struct IndexPut {
  std::vector<std::vector<int64_t>> indices;
  Array values;
  bool accumulate = false;

  static constexpr int64_t kSizes[] = {5, 4, 3};
  int64_t inner() const { return indices.size() == 1 ? 12 : 3; }
  // The first element that index i selects.
  int64_t place(size_t i) const {
    int64_t at = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      const int64_t index = indices[d][i];
      at = at * kSizes[d] + (index < 0 ? index + kSizes[d] : index);
    }
    return at * inner();
  }
  // Calls f(element of x, element of the values) for all that count.
  template <class F>
  void each(F&& f) const {
    const size_t m = indices[0].size();
    for (size_t i = 0; i < m; ++i) {
      bool last = true;
      for (size_t j = i + 1; j < m; ++j) last &= place(j) != place(i);
      if (!last && !accumulate) continue;
      for (int64_t e = 0; e < inner(); ++e)
        f(place(i) + e, static_cast<int64_t>(i) * inner() + e);
    }
  }
};

// Compares with plain loops, in the given layouts of x and of the values.
void check_index_put(const IndexPut& call, const std::string& mesh_text,
                     const std::string& of_x, const std::string& of_values,
                     const std::string& of_indices) {
  const std::string what = of_x + " " + of_values + " " + of_indices;
  const Array x = values({5, 4, 3}, 1), dy = values({5, 4, 3}, 3);
  Array y = x, dx = dy, dv = zeros_like(call.values.shape);
  call.each([&](int64_t at, int64_t from) {
    y.at(at) = call.values.at(from) + (call.accumulate ? y.at(at) : 0);
    if (!call.accumulate) dx.at(at) = 0;
    dv.at(from) = dy.at(at);
  });
  on_mesh(mesh_text, [&](const Mesh& mesh) {
    const DistTensor tx = put(x, mesh, of_x).set_requires_grad(),
                     tv = put(call.values, mesh, of_values).set_requires_grad();
    std::vector<DistTensor> indices;
    for (const std::vector<int64_t>& index : call.indices)
      indices.push_back(
          put(integers({std::ssize(index)}, {index.begin(), index.end()}), mesh,
              of_indices));
    const DistTensor out = index_put(tx, indices, tv, call.accumulate);
    expect_near(array_of(out.full()), y, 1e-14, what);
    const auto g = grad(out, {tx, tv}, {.cotangent = put(dy, mesh)});
    expect_near(array_of(g[0].full()), dx, 1e-15, what + ", dx");
    expect_near(array_of(g[1].full()), dv, 1e-15, what + ", dvalues");
  });
}

TEST(IndexPutTest, ByValueInEveryLayout) {
  for (bool accumulate : {false, true}) {
    const IndexPut rows{{{4, 0, -1, 2, 0}}, values({5, 4, 3}, 2), accumulate};
    const IndexPut pairs{{{4, 0, -1, 2, 0, 4}, {1, 3, -3, 0, 3, 2}},
                         values({6, 3}, 2),
                         accumulate};
    for (const char* mesh : {"x=2", "x=3"})
      for (const char* of_x : {"R", "S0", "S1", "S2"})
        for (const char* of_values : {"R", "S0", "S1"})
          for (const char* of_indices : {"R", "S0"}) {
            check_index_put(rows, mesh, of_x, of_values, of_indices);
            check_index_put(pairs, mesh, of_x, of_values, of_indices);
          }
    check_index_put(rows, "x=2,y=3", "S0,S2", "R,S2", "S0,R");
    check_index_put(pairs, "x=2,y=3", "S0,S0", "S1,S0", "R,S0");
  }
}

// As torch, it broadcasts indices and values.
TEST(IndexPutTest, Broadcasts) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = zeros({2, 3, 2}, mesh, "S0", DType::kF64);
    const DistTensor column = put(integers({2, 1}, {0, -1}), mesh),
                     row = put(integers({2}, {2, 0}), mesh),
                     one = put(integers({}, {1}), mesh);
    const DistTensor number = put({{}, {7}}, mesh).set_requires_grad();
    const DistTensor y = index_put(x, {column, row}, number);
    expect_near(array_of(y.full()),
                {{2, 3, 2}, {7, 7, 0, 0, 7, 7, 7, 7, 0, 0, 7, 7}}, 0, "grid");
    EXPECT_EQ(grad(sum(y), {number})[0].full().at(0), 8);
    expect_near(
        array_of(index_put(x, {one}, put({{2}, {3, 4}}, mesh), true).full()),
        {{2, 3, 2}, {0, 0, 0, 0, 0, 0, 3, 4, 3, 4, 3, 4}}, 0, "scalar index");
    expect_near(array_of(index_put(x, {one, one, one}, number).full()),
                {{2, 3, 2}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0}}, 0,
                "one element");
    const DistTensor none = zeros({0}, mesh, {}, DType::kI64);
    expect_near(array_of(index_put(y, {none}, number).full()),
                array_of(y.full()), 0, "no index");
  });
}

TEST(IndexPutTest, OtherTypes) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor i = put(integers({3}, {2, 0, 2}, DType::kI32), mesh);
    const auto of = [&](DType t, bool accumulate) {
      const DistTensor x = cast(put(integers({3}, {1, 0, 0}), mesh, "S0"), t),
                       v = cast(put(integers({3}, {3, 0, 5}), mesh), t);
      const DistTensor y = index_put(x, {i}, v, accumulate);
      EXPECT_EQ(y.dtype(), t);
      return array_of(cast(y, DType::kF64).full());
    };
    for (DType t : {DType::kF32, DType::kBF16, DType::kI64}) {
      expect_near(of(t, false), {{3}, {0, 0, 5}}, 0, "put");
      expect_near(of(t, true), {{3}, {1, 0, 8}}, 0, "add");
    }
    expect_near(of(DType::kBool, false), {{3}, {0, 0, 1}}, 0, "bool");
    expect_near(of(DType::kBool, true), {{3}, {1, 0, 1}}, 0, "or");
  });
}

// An undefined index stands for all indices; a mask takes no values of its own.
TEST(IndexPutTest, OtherIndices) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = zeros({2, 3, 2}, mesh, "S2", DType::kF64);
    const DistTensor i = put(integers({2}, {0, -1}), mesh), all,
                     v = put(values({2, 2}, 1), mesh),
                     row = put({{2}, {3, 4}}, mesh),
                     mask = put({{2, 3}, {0, 1, 0, 1, 0, 0}, DType::kBool},
                                mesh, "S0");
    const auto same = [](const DistTensor& a, const DistTensor& b) {
      expect_near(array_of(a.full()), array_of(b.full()), 0, "");
    };
    same(index_put(x, {all, i, i}, v),
         transpose(index_put(transpose(x, 0, 2), {i, i}, transpose(v, 0, 1)), 0,
                   2));
    same(index_put(x, {i, all, i}, unsqueeze(row, 1)),
         transpose(index_put(transpose(x, 1, 2), {i, i}, unsqueeze(row, 1)), 1,
                   2));
    for (bool accumulate : {false, true})
      same(index_put(x + 1, {mask}, row, accumulate),
           where(unsqueeze(mask, -1), accumulate ? row + 1 : row, x + 1));
    expect_near(array_of(index_put(x, {mask}, v, true).full()),
                {{2, 3, 2},
                 {0, 0, v.full().at(0), v.full().at(1), 0, 0, v.full().at(2),
                  v.full().at(3), 0, 0, 0, 0}},
                0, "a value for each element");
  });
}

// x may be split along the first dimension, and along those without indices.
TEST(IndexPutTest, SplitDimensionsSendNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor i = put(integers({3}, {2, 0, 2}), mesh);
    for (const char* layout : {"S0", "S1"})
      for (bool accumulate : {false, true}) {
        const DistTensor x = put(values({6, 4}, 1), mesh, layout),
                         v = put(values({3, 4}, 2), mesh,
                                 layout == std::string("S1") ? "S1" : "R");
        EXPECT_EQ(sent([&] {
                    const auto y = index_put(x, {i}, v, accumulate);
                    EXPECT_EQ(y.spec()->to_string(),
                              fmt::format("f64[6, 4]({})", layout));
                  }),
                  0);
      }
  });
}

TEST(IndexPutTest, Errors) {
  const auto error = [](const Array& index, const Array& v, int count = 1) {
    return error_of(2, [&](const Mesh& m) {
      const DistTensor i = put(index, m, index.shape.empty() ? "R" : "S0");
      index_put(put(values({3, 4}, 1), m, "S1"),
                std::vector<DistTensor>(static_cast<size_t>(count), i),
                put(v, m));
    });
  };
  const Array row = values({4}, 2);
  for (double bad : {3, -4})
    EXPECT_EQ(error(integers({2}, {1, bad}), row),
              fmt::format("[index_put] index {} is not in [-3, 3), the indices "
                          "of dimension 0 of the tensor; pass indices in that "
                          "range",
                          bad));
  EXPECT_EQ(error({{2}, {1, 0}, DType::kBool}, row),
            "[index_put] the mask bool[2](S0) does not have the sizes of the "
            "dimensions of f64[3, 4](S1) from 0 on; pass one that has");
  EXPECT_EQ(error({{2}, {1, 0}}, row),
            "[index_put] the indices f64[2](S0) of dimension 0 are f64, but "
            "must be i32 or i64; write cast(indices, DType::kI64)");
  EXPECT_EQ(error(integers({2}, {1, 2}), row, 3),
            "[index_put] got 3 indices for f64[3, 4](S1); pass at most one for "
            "each dimension");
  EXPECT_EQ(error(integers({2}, {1, 2}), integers({4}, {1, 2, 3, 4})),
            "[index_put] the values are i64, but the tensor is f64; write "
            "cast(values, x.dtype())");
  EXPECT_EQ(error(integers({2}, {1, 2}), values({3, 4}, 1)),
            "[index_put] the values f64[3, 4](R) do not fit the elements of "
            "f64[3, 4](S1) that the indices select; pass values of shape [2, "
            "4], or of one that broadcasts to it");
}

}  // namespace
}  // namespace dtensor::testing
