// SPDX-License-Identifier: Apache-2.0
// The values of the functions are torch's, which tests/conformance compares.
// Here are their layouts, what they send, other types, ties, and errors.
#include "dtensor/ops/by_index.h"

#include <algorithm>
#include <limits>

#include "dtensor/dtensor.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using R = IndexReduction;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A part of src for each rank gives a partial result; nothing is sent.
TEST(ScatterReduce, StaysSplit) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put(values({3, 4}, 1), mesh),
                     src = put(values({3, 6}, 2), mesh, "S1"),
                     i = put(integers({3, 6}, std::vector<double>(18, 2)), mesh,
                             "S1");
    DistTensor y;
    for (const auto& [by, layout] :
         {std::pair(R::kSum, "P"), std::pair(R::kProd, "P(prod)"),
          std::pair(R::kAmax, "P(max)"), std::pair(R::kAmin, "P(min)")}) {
      EXPECT_EQ(sent([&] { y = scatter_reduce(x, 1, i, src, by); }), 0);
      EXPECT_EQ(y.spec()->to_string(), fmt::format("f64[3, 4]({})", layout));
    }
    const DistTensor split = put(values({3, 4}, 1), mesh, "S1"),
                     whole = put(values({3, 6}, 2), mesh),
                     all = put(integers({3, 6}, std::vector<double>(18, 2)),
                               mesh);
    for (R by : {R::kSum, R::kProd, R::kMean, R::kAmax, R::kAmin})
      for (bool self : {false, true})
        EXPECT_EQ(
            sent([&] { y = scatter_reduce(split, 1, all, whole, by, self); }),
            0);
  });
}

TEST(ScatterReduce, OtherTypes) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor i = put(integers({5}, {2, 0, 2, 2, 0}), mesh, "S0");
    const auto of = [&](DType t, R by, bool self) {
      const DistTensor x = cast(put(integers({3}, {-3, 7, 1}), mesh, "S0"), t),
                       src = cast(put(integers({5}, {2, 4, 5, 0, 5}), mesh), t);
      const DistTensor y = scatter_reduce(x, 0, i, src, by, self);
      EXPECT_EQ(y.dtype(), t);
      return array_of(cast(y, DType::kF64).full());
    };
    for (DType t : {DType::kF32, DType::kBF16, DType::kI32, DType::kI64}) {
      expect_near(of(t, R::kAmax, false), {{3}, {5, 7, 5}}, 0, "max");
      expect_near(of(t, R::kAmin, false), {{3}, {4, 7, 0}}, 0, "min");
      expect_near(of(t, R::kAmin, true), {{3}, {-3, 7, 0}}, 0, "min");
      expect_near(of(t, R::kProd, true), {{3}, {-60, 7, 0}}, 0, "product");
      expect_near(of(t, R::kProd, false), {{3}, {20, 7, 0}}, 0, "product");
      expect_near(of(t, R::kSum, false), {{3}, {9, 7, 7}}, 0, "sum");
      expect_near(of(t, R::kMean, true), {{3}, {2, 7, 2}}, 0, "mean");
    }
    expect_near(of(DType::kI64, R::kMean, false), {{3}, {4, 7, 2}}, 0, "down");
    expect_near(of(DType::kBool, R::kProd, true), {{3}, {1, 1, 0}}, 0, "and");
    expect_near(of(DType::kBool, R::kAmax, true), {{3}, {1, 1, 1}}, 0, "or");
  });
}

// All that equal the maximum share its cotangent; a NaN stays.
TEST(ScatterReduce, Ties) {
  on_mesh("x=3", [](const Mesh& mesh) {
    const DistTensor x = put({{2}, {5, 1}}, mesh).set_requires_grad(),
                     src = put({{5}, {5, 2, 5, 3, 3}}, mesh, "S0")
                               .set_requires_grad(),
                     i = put(integers({5}, {0, 0, 0, 1, 1}), mesh, "S0");
    const auto g = grad(sum(scatter_reduce(x, 0, i, src, R::kAmax)), {x, src});
    expect_near(array_of(g[0].full()), {{2}, {1. / 3, 0}}, 1e-15, "dx");
    expect_near(array_of(g[1].full()), {{5}, {1. / 3, 0, 1. / 3, .5, .5}},
                1e-15, "dsrc");
    const DistTensor bad = put({{5}, {5, kNaN, 5, 3, 3}}, mesh, "S0");
    for (R by : {R::kAmax, R::kAmin})
      EXPECT_TRUE(std::isnan(scatter_reduce(x, 0, i, bad, by).full().at(0)));
  });
}

// The first and the second derivatives of a product, by its zeros, too.
TEST(ScatterReduce, ZerosOfAProduct) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put({{3}, {0, 2, 3}}, mesh).set_requires_grad(),
                     src = put({{5}, {0, 4, 0, 5, 7}}, mesh, "S0")
                               .set_requires_grad(),
                     i = put(integers({5}, {0, 0, 1, 1, 2}), mesh, "S0");
    // y = {x0 s0 s1, x1 s2 s3, x2 s4}
    const DistTensor y = scatter_reduce(x, 0, i, src, R::kProd);
    const auto g = grad(sum(y), {x, src}, {.create_graph = true});
    expect_near(array_of(g[0].full()), {{3}, {0, 0, 7}}, 0, "dx");
    expect_near(array_of(g[1].full()), {{5}, {0, 0, 10, 0, 3}}, 0, "dsrc");
    const auto h = grad(sum(g[0]), {x, src});
    // dx = {s0 s1, s2 s3, s4}
    expect_near(array_of(h[0].full()), {{3}, {0, 0, 0}}, 0, "dx dx");
    expect_near(array_of(h[1].full()), {{5}, {4, 0, 5, 0, 1}}, 0, "dx dsrc");
  });
}

// x may be split along one indexed dimension, and along those without indices.
TEST(Index, SendsNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor i = put(integers({2, 1}, {1, -1}), mesh),
                     j = put(integers({3}, {0, -2, 2}), mesh), all;
    for (const char* layout : {"S0", "S1", "S2", "S3"}) {
      const DistTensor x = put(values({4, 3, 6, 2}, 1), mesh, layout);
      DistTensor near, far;
      EXPECT_EQ(sent([&] {
                  near = index(x, {all, i, j});
                  far = index(x, {i, all, j});
                }),
                0)
          << layout;
      EXPECT_EQ(near.shape(), (Shape{4, 2, 3, 2}));
      EXPECT_EQ(far.shape(), (Shape{2, 3, 3, 2}));
      expect_near(array_of(select(near, 1, 1).full()),
                  array_of(index(select(x, 1, 2), {all, j}).full()), 0, layout);
      expect_near(
          array_of(select(far, 0, 1).full()),
          array_of(index(movedim(select(x, 0, 3), {1}, {0}), {j}).full()), 0,
          layout);
    }
  });
}

TEST(Index, Masks) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put(values({3, 2, 3}, 1), mesh, "S0"), all;
    const DistTensor one = put({{3}, {1, 0, 1}, DType::kBool}, mesh, "S0"),
                     two = put({{2, 3}, {0, 1, 0, 1, 0, 1}, DType::kBool}, mesh,
                               "S1"),
                     i = put(integers({2}, {0, 2}), mesh);
    const auto same = [](const DistTensor& a, const DistTensor& b) {
      expect_near(array_of(a.full()), array_of(b.full()), 0, "");
    };
    same(index(x, {one}), index_select(x, 0, i));
    same(index(x, {all, two}),
         index(x, {all, put(integers({3}, {0, 1, 1}), mesh),
                   put(integers({3}, {1, 0, 2}), mesh)}));
    same(index(x, {one, all, put(integers({2, 1}, {1, 0}), mesh)}),
         index(x, {i, all, put(integers({2, 1}, {1, 0}), mesh)}));
  });
}

// Bags 0 and 3 are empty; the last two rows of the table are equal.
TEST(EmbeddingBag, BagsOfAVector) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor table =
        put({{4, 1}, {1, 2, 5, 5}}, mesh, "S0").set_requires_grad();
    const DistTensor ids = put(integers({5}, {3, 2, 1, 0, 1}), mesh, "S0");
    EmbeddingBagOptions o;
    o.offsets = put(integers({5}, {0, 0, 3, 5, 5}), mesh);
    const auto is = [&](const std::vector<double>& want,
                        const std::vector<double>& d) {
      const DistTensor y = embedding_bag(table, ids, o);
      const auto rows = static_cast<int64_t>(want.size());
      expect_near(array_of(y.full()), {{rows, 1}, want}, 1e-15, "y");
      expect_near(array_of(grad(sum(y), {table})[0].full()), {{4, 1}, d}, 1e-15,
                  "d");
    };
    is({0, 4, 1.5, 0, 0}, {.5, 1. / 3 + .5, 1. / 3, 1. / 3});
    o.mode = BagMode::kMax;
    is({0, 5, 2, 0, 0}, {0, 1, 0, 1});
    o.padding_idx = -1;
    is({0, 5, 2, 0, 0}, {0, 1, 1, 0});
    o.mode = BagMode::kMean;
    o.include_last_offset = true;
    is({0, 3.5, 1.5, 0}, {.5, 1, .5, 0});
    o.offsets = {};
    o.include_last_offset = false;
    expect_near(array_of(embedding_bag(table, reshape(ids, {1, 5}), o).full()),
                {{1, 1}, {2.5}}, 1e-15, "one row");
    // NaN is the largest element of the bags that have it.
    const DistTensor some = put({{4, 1}, {1, 2, kNaN, 5}}, mesh, "S0"),
                     offsets = put(integers({2}, {0, 3}), mesh);
    expect_near(
        array_of(embedding_bag(some, ids,
                               {.mode = BagMode::kMax, .offsets = offsets})
                     .full()),
        {{2, 1}, {kNaN, 2}}, 0, "NaN");
  });
}

TEST(IsIn, AgainstALoop) {
  on_mesh("x=2", [](const Mesh& mesh) {
    for (int64_t n : {0, 1, 2, 5, 8, 13}) {
      const Array x = integers({3, 7}, {0, 1, 2,  3,  4,  5, 6, 7,  8,  9, 10,
                                        3, 7, 12, -1, 13, 2, 5, 11, 20, 4});
      Array among = zeros_like({n}), want{x.shape, {}, DType::kBool};
      for (int64_t i = 0; i < n; ++i)
        among.at(i) = static_cast<double>(i * 5 % 13);
      for (double v : x.v)
        want.v.push_back(std::count(among.v.begin(), among.v.end(), v) > 0);
      for (const char* layout : {"R", "S0"}) {
        const DistTensor in = put(x, mesh, "S1"),
                         all = put(among, mesh, layout);
        expect_near(array_of(isin(in, all).full()), want, 0, layout);
        expect_near(array_of(logical_not(isin(in, all, true)).full()), want, 0,
                    layout);
      }
    }
    const DistTensor yes = put({{2}, {1, 1}, DType::kBool}, mesh, "S0"),
                     nan = put({{2}, {kNaN, 1}}, mesh);
    expect_near(array_of(isin(yes, yes).full()), {{2}, {1, 1}}, 0, "bools");
    expect_near(array_of(isin(nan, nan).full()), {{2}, {0, 1}}, 0, "NaN");
  });
}

TEST(ByIndex, Errors) {
  const auto error = [](auto&& call) {
    return error_of(2, [&](const Mesh& m) {
      const DistTensor x = put(values({3, 4}, 1), m, "S1"),
                       i = put(integers({2}, {0, 7}), m);
      call(x, i);
    });
  };
  EXPECT_EQ(error([](auto& x, auto& i) { index(x, {i}); }),
            "[index] index 7 is not in [-3, 3), the indices of dimension 0 of "
            "the tensor; pass indices in that range");
  EXPECT_EQ(error([](auto& x, auto& i) {
              index(x, {DistTensor(), eq(i, 0)});
            }),
            "[index] the mask bool[2](R) does not have the sizes of the "
            "dimensions of f64[3, 4](S1) from 1 on; pass one that has");
  EXPECT_EQ(error([](auto& x, auto& i) { index_copy(x, 0, i, x); }),
            "[index_copy] the slices f64[3, 4](S1) do not fit f64[3, 4](S1) at "
            "the indices i64[2](R) of dimension 0; pass a tensor of f64 and of "
            "shape [2, 4]");
  EXPECT_EQ(error([](auto& x, auto& i) {
              scatter_reduce(x, 0, reshape(i, {1, 2}), x, R::kAmax);
            }),
            "[scatter_amax] index 7 is not in [0, 3), the indices of dimension "
            "0 of the tensor; pass indices in that range");
  EXPECT_EQ(error([](auto& x, auto& i) { put(x, i, x); }),
            "[put] got 12 elements for 2 indices; pass one element for each "
            "index");
  EXPECT_EQ(error([](auto& x, auto& i) { embedding_bag(x, i); }),
            "[embedding_bag] the ids are i64[2](R); pass a matrix with a bag "
            "in each row, or a vector and the offsets of the bags");
  EXPECT_EQ(error([](auto& x, auto& i) {
              embedding_bag(x, reshape(i, {1, 2}), {.padding_idx = 3});
            }),
            "[embedding_bag] padding_idx is 3; write an id in [-3, 3)");
}

// A count in bf16 would stay at 256.
TEST(ByIndex, MeanOfManyHalves) {
  on_mesh("x=2", [](const Mesh& m) {
    const DistTensor src = cat({zeros({999}, m, {}, DType::kBF16),
                                full({1}, 100, m, {}, DType::kBF16)});
    const DistTensor y = scatter_reduce(zeros({1}, m, {}, DType::kBF16), 0,
                                        full({1000}, 0, m, {}, DType::kI64),
                                        src, IndexReduction::kMean, false);
    EXPECT_NEAR(y.item(), 0.1, 0.001);
  });
}

// Of n indices from the end, -n is the first element.
TEST(ByIndex, NegativeIndices) {
  for (const char* layout : {"R", "S0", "S1"})
    on_mesh("x=2", [&](const Mesh& mesh) {
      const DistTensor x = put({{2, 3}, {0, 1, 2, 3, 4, 5}}, mesh, layout),
                       at = put(integers({2, 2}, {-3, -1, 2, -2}), mesh);
      expect_near(array_of(take_along_dim(x, at, 1).full()),
                  {{2, 2}, {0, 2, 5, 4}}, 0, layout);
      expect_near(array_of(take_along_dim(x, at - 3).full()),
                  {{4}, {0, 2, 5, 1}}, 0, layout);
      expect_near(array_of(take(x, at - 3).full()), {{2, 2}, {0, 2, 5, 1}}, 0,
                  layout);
    });
}

TEST(ByIndex, OnlyIntegersAreIndices) {
  const auto error = [](auto&& f) {
    return error_of(1, [&](const Mesh& m) {
      f(zeros({3}, m), full({3}, 1, m, {}, DType::kBool));
    });
  };
  const std::string rest =
      "the indices are bool, but must be i32 or i64; write cast(indices, "
      "DType::kI64)";
  EXPECT_EQ(error([](auto x, auto i) { take(x, i); }), "[take] " + rest);
  EXPECT_EQ(error([](auto x, auto i) { put(x, i, x); }), "[put] " + rest);
  EXPECT_EQ(error([](auto x, auto i) { index_copy(x, 0, i, x); }),
            "[index_copy] " + rest);
  EXPECT_EQ(error([](auto x, auto i) { index_fill(x, 0, i, 1); }),
            "[index_fill] " + rest);
  EXPECT_EQ(error([](auto x, auto i) { take_along_dim(x, i); }),
            "[take_along_dim] " + rest);
}

}  // namespace
}  // namespace dtensor::testing
