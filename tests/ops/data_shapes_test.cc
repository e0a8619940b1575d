// SPDX-License-Identifier: Apache-2.0
// Compares with plain loops, in layouts of split rows and columns.
#include "dtensor/ops/data_shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/view.h"
#include "tests/ops/structured_testing.h"

namespace dtensor::testing {
namespace {

using Numbers = std::vector<double>;

// Small whole numbers, many of which are equal.
Array few(const Shape& shape, double most) {
  Array x = values(shape, 3);
  for (double& v : x.v) v = std::round(v * most);
  return x;
}

// Calls fn with a matrix in several layouts.
void in_layouts(const Array& x, DType t,
                const std::function<void(const DistTensor&)>& fn) {
  for (const auto& [mesh, layout] :
       std::vector<std::pair<const char*, const char*>>{{"x=1", "R"},
                                                        {"x=3", "S0"},
                                                        {"x=4", "S1"},
                                                        {"x=2,y=2", "S1,S0"},
                                                        {"x=2,y=2", "R,S0"}}) {
    SCOPED_TRACE(std::string(mesh) + " " + layout);
    on_mesh(mesh, [&](const Mesh& m) { fn(put(x, m, layout, t)); });
  }
}

TEST(Nonzero, Indices) {
  const Array x = few({5, 7}, 1);
  Numbers want, rows, columns;
  for (int64_t i = 0; i < 35; ++i)
    if (x.at(i) != 0) {
      rows.push_back(static_cast<double>(i / 7));
      columns.push_back(static_cast<double>(i % 7));
      want.insert(want.end(), {rows.back(), columns.back()});
    }
  ASSERT_LT(rows.size(), 30u);
  in_layouts(x, DType::kF32, [&](const DistTensor& x) {
    const DistTensor got = nonzero(x);
    EXPECT_EQ(got.size(1), 2);
    EXPECT_EQ(values(got), want);
    EXPECT_EQ(values(argwhere(x)), want);
    const std::vector<DistTensor> both = where(ne(x, 0));
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(values(both[0]), rows);
    EXPECT_EQ(values(both[1]), columns);
  });
}

TEST(Nonzero, ScalarsAndNothing) {
  on_mesh("x=2", [](const Mesh& mesh) {
    EXPECT_EQ(nonzero(full({}, 3, mesh)).shape(), (Shape{1, 0}));
    EXPECT_EQ(nonzero(full({}, 0, mesh)).shape(), (Shape{0, 0}));
    EXPECT_EQ(values(where(full({}, 3, mesh)).at(0)), (Numbers{0}));
    EXPECT_EQ(nonzero(zeros({2, 0, 3}, mesh, "S0")).shape(), (Shape{0, 3}));
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(values(nonzero(put({{3}, {0, nan, 0}}, mesh, "S0"))),
              (Numbers{1}));
  });
}

TEST(MaskedSelect, EveryType) {
  const Array x = few({5, 7}, 9);
  Numbers want, signs;
  for (double v : x.v)
    if (v > 2) {
      want.push_back(v);
      signs.push_back(v > 5);
    }
  for (DType t : {DType::kF64, DType::kBF16, DType::kF16, DType::kI32})
    in_layouts(x, DType::kF64, [&](const DistTensor& wide) {
      const DistTensor x = cast(wide, t), y = masked_select(x, gt(x, 2));
      EXPECT_EQ(y.dtype(), t);
      EXPECT_EQ(values(y), want);
      const DistTensor bools = masked_select(gt(x, 5), gt(x, 2));
      EXPECT_EQ(bools.dtype(), DType::kBool);
      EXPECT_EQ(values(bools), signs);
    });
}

TEST(MaskedSelect, SendsOnlyNumbersOfElements) {
  on_mesh("x=4", [](const Mesh& mesh) {
    const DistTensor x = put(values({1024, 8}, 3), mesh, "S0");
    const DistTensor mask = gt(x, 0);
    CommRecord record;
    const DistTensor y = masked_select(x, mask), at = nonzero(flatten(mask)),
                     first = unique_consecutive(x).values;
    int64_t bytes = 0;
    for (const CommEvent& e : record.events()) bytes += e.counted;
    // x has 65536 bytes.
    EXPECT_LE(bytes, 8 * y.size(0) * 2 + 200);
    EXPECT_EQ(first.size(0), 8192);
    EXPECT_EQ(at.size(0), y.size(0));
  });
}

// The only running sum is that of the elements found: indices need none.
TEST(Nonzero, CountsOnce) {
  on_mesh("x=4", [](const Mesh& mesh) {
    const DistTensor x = gt(put(values({64, 8, 2}, 3), mesh, "S0"), 0);
    CommRecord record;
    nonzero(x);
    const auto& events = record.events();
    EXPECT_EQ(std::count_if(events.begin(), events.end(),
                            [](const auto& e) { return e.op == "cumsum"; }),
              1);
  });
}

TEST(MaskedSelect, DryRun) {
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    const DistTensor x = zeros({5, 7}, rt.mesh(), "S0");
    EXPECT_EQ(masked_select(x, gt(x, 0)).shape(), Shape{35});
    EXPECT_EQ(masked_select(x, gt(x, 0), 6).shape(), Shape{6});
    EXPECT_EQ(nonzero(x).shape(), (Shape{35, 2}));
    EXPECT_EQ(argwhere(x, 3).shape(), (Shape{3, 2}));
    EXPECT_EQ(where(x, 4)[1].shape(), Shape{4});
    EXPECT_EQ(masked_scatter(x, gt(x, 0), x).shape(), (Shape{5, 7}));
    EXPECT_EQ(masked_scatter(x, gt(x, 0), slice(flatten(x), 0, 0, 9)).shape(),
              (Shape{5, 7}));
    EXPECT_EQ(unique(x, 1).inverse.shape(), Shape{7});
    EXPECT_EQ(unique(x).values.shape(), Shape{35});
    EXPECT_EQ(unique(x, 1, 2).values.shape(), (Shape{5, 2}));
    EXPECT_EQ(unique_consecutive(x, {}, 8).counts.shape(), Shape{8});
  });
}

TEST(MaskedScatter, Errors) {
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       const DistTensor x = ones({4}, m, "S0");
                       masked_scatter(x, gt(x, 0), ones({3}, m));
                     }),
            "[masked_scatter] the mask is true in 4 places, but the source "
            "f32[3](R) has only 3 elements; pass one for each place");
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       const DistTensor x = ones({4}, m);
                       masked_scatter(x, gt(x, 0),
                                      ones({4}, m, {}, DType::kF64));
                     }),
            "[masked_scatter] the source is f64, but the tensor is f32; write "
            "cast(source, x.dtype())");
  EXPECT_EQ(
      error_of(2,
               [](const Mesh& m) {
                 const DistTensor x = ones({4}, m);
                 masked_select(x, x);
               }),
      "[masked_select] the mask f32[4](R) is not bool; write ne(mask, 0)");
}

TEST(MaskedScatter, ShortSourcesAndBools) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put({{4}, {1, 0, 3, 0}}, mesh, "S0");
    const DistTensor source = put({{2}, {7, 0}}, mesh, "S0");
    EXPECT_EQ(values(masked_scatter(x, ne(x, 0), source)),
              (Numbers{7, 0, 0, 0}));
    EXPECT_EQ(values(masked_scatter(ne(x, 0), ne(x, 1), ne(x, 3))),
              (Numbers{1, 1, 1, 0}));
    EXPECT_EQ(
        masked_scatter(full({}, 1, mesh), full({}, 1, mesh, {}, DType::kBool),
                       full({1}, 5, mesh))
            .item(),
        5);
  });
}

// The slices of a matrix along `dim`, or its elements.
std::vector<Numbers> slices(const Array& x, std::optional<int> dim) {
  const int64_t n = x.shape.back(),
                count = dim ? x.shape[*dim] : numel(x.shape);
  std::vector<Numbers> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < numel(x.shape); ++i)
    all[static_cast<size_t>(!dim        ? i
                            : *dim == 0 ? i / n
                                        : i % n)]
        .push_back(x.at(i));
  return all;
}

void expect_unique(const Array& x, std::optional<int> dim, bool sorted,
                   const Unique& got) {
  const std::vector<Numbers> all = slices(x, dim),
                             distinct =
                                 slices(array_of(got.values.full()), dim);
  std::vector<Numbers> want = all;
  if (sorted) std::sort(want.begin(), want.end());
  want.erase(std::unique(want.begin(), want.end()), want.end());
  ASSERT_EQ(distinct, want);
  EXPECT_EQ(got.inverse.shape(), dim ? Shape{x.shape[*dim]} : x.shape);
  const Numbers inverse = values(got.inverse);
  Numbers counts(distinct.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto group = static_cast<size_t>(inverse[i]);
    EXPECT_EQ(distinct.at(group), all[i]);
    ++counts[group];
  }
  EXPECT_EQ(values(got.counts), counts);
}

TEST(Unique, ElementsAndSlices) {
  for (const auto& [shape, most] :
       std::vector<std::pair<Shape, double>>{{{5, 7}, 3},
                                             {{11, 3}, 0.6},
                                             {{2, 13}, 1},
                                             {{9, 1}, 2},
                                             {{1, 1}, 1}}) {
    const Array x = few(shape, most);
    for (std::optional<int> dim : {std::optional<int>(), {0}, {1}})
      in_layouts(x, DType::kF32, [&](const DistTensor& t) {
        expect_unique(x, dim, true, unique(t, dim));
        expect_unique(x, dim, false, unique_consecutive(t, dim));
      });
  }
}

TEST(Unique, OfNothing) {
  on_mesh("x=2", [](const Mesh& m) {
    for (const Unique& u : {unique(zeros({0}, m, "S0")),
                            unique_consecutive(zeros({0}, m, "S0"))}) {
      EXPECT_EQ(u.values.shape(), Shape{0});
      EXPECT_EQ(u.inverse.shape(), Shape{0});
      EXPECT_EQ(u.counts.shape(), Shape{0});
    }
  });
}

TEST(Unique, OtherTypesAndShapes) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Unique u = unique(put({{5}, {nan, 0, nan, -0.0, -1}}, mesh, "S0"));
    const Numbers v = values(u.values);
    ASSERT_EQ(v.size(), 4u);
    EXPECT_EQ((Numbers{v[0], v[1]}), (Numbers{-1, 0}));
    EXPECT_TRUE(std::isnan(v[2]) && std::isnan(v[3]));
    EXPECT_EQ(values(u.inverse), (Numbers{2, 1, 3, 1, 0}));
    EXPECT_EQ(values(u.counts), (Numbers{1, 2, 1, 1}));

    const DistTensor x = put({{5}, {1, 0, 1, 1, 0}}, mesh, "S0");
    for (DType t : {DType::kBool, DType::kBF16, DType::kI32, DType::kI64}) {
      EXPECT_EQ(unique(cast(x, t)).values.dtype(), t);
      EXPECT_EQ(values(unique(cast(x, t)).values), (Numbers{0, 1}));
      EXPECT_EQ(values(unique_consecutive(cast(x, t)).values),
                (Numbers{1, 0, 1, 0}));
    }
    const Unique none = unique(zeros({0}, mesh, "S0"));
    EXPECT_EQ(none.values.shape(), Shape{0});
    EXPECT_EQ(none.counts.shape(), Shape{0});
    EXPECT_EQ(unique(zeros({0, 3}, mesh), 0).values.shape(), (Shape{0, 3}));
    EXPECT_EQ(unique(full({}, 3, mesh)).inverse.shape(), Shape{});
    // Slices in three dimensions.
    const DistTensor cube =
        reshape(cat({x, ones({3}, mesh, {}, DType::kF64), x, x}), {2, 3, 3});
    EXPECT_EQ(values(unique(cube, -1).counts), (Numbers{1, 1, 1}));
    EXPECT_EQ(unique(cube, 1).values.shape(), (Shape{2, 3, 3}));
  });
  EXPECT_EQ(
      error_of(2,
               [](const Mesh& m) {
                 unique(zeros({3, 0}, m), 0);
               }),
      "[unique] the slices of f32[3, 0](R) along dimension 0 are empty; pass a "
      "tensor whose other dimensions have elements");
}

TEST(UsedRows, StandForTheTable) {
  const Array table = values({9, 3}, 1);
  const Array ids = integers({4, 3}, {7, 2, 7, 0, 2, 2, 8, 0, 7, 7, 7, 2});
  for (const auto& [mesh, layout, batch] :
       std::vector<std::tuple<const char*, const char*, const char*>>{
           {"x=1", "R", "R"},
           {"x=2", "S0", "S0"},
           {"x=3", "S0", "S1"},
           {"x=3", "S1", "S0"},
           {"x=2,y=2", "R,S0", "S0,R"},
           {"x=2,y=2", "S0,S1", "P,S0"}})
    for (DType type : {DType::kI64, DType::kI32})
      on_mesh(mesh, [&](const Mesh& m) {
        SCOPED_TRACE(std::string(mesh) + " " + layout + " " + batch);
        const DistTensor t = put(table, m, layout).as_parameter(),
                         i = cast(put(ids, m, batch), type);
        const UsedRows used = used_rows(t, i);
        EXPECT_EQ(values(used.ids), (Numbers{0, 2, 7, 8, -1}));
        EXPECT_EQ(values(used.rows),
                  values(embedding(t, used.ids, {.zeros_outside = true})));
        EXPECT_EQ(values(embedding(used.rows, used.places)),
                  values(embedding(t, i)));
        EXPECT_FALSE(used.rows.spec()->split_axes() & ~t.spec()->split_axes());
        // Padding: 2 is a row of the table that no id uses, and the last place.
        for (int64_t padding : {2, -7}) {
          const UsedRows p = used_rows(t, i, padding);
          EXPECT_EQ(values(p.ids), (Numbers{0, 7, 8, -1, -1}));
          EXPECT_EQ(values(p.places),
                    (Numbers{1, 4, 1, 0, 4, 4, 2, 0, 1, 1, 1, 4}));
          expect_near(
              array_of(
                  embedding_bag(p.rows, p.places, {.padding_idx = -1}).full()),
              array_of(embedding_bag(t, i, {.padding_idx = padding}).full()),
              1e-14, "bags");
        }
      });
}

TEST(UsedRows, OfATableWithoutAGradientAndOfNoIds) {
  on_mesh("x=2", [](const Mesh& m) {
    const DistTensor t = ones({9, 3}, m, "S0");
    const UsedRows used = used_rows(t, zeros({0, 4}, m, "S0", DType::kI64));
    EXPECT_FALSE(used.rows.requires_grad());
    EXPECT_EQ(values(used.ids), (Numbers{-1}));
    EXPECT_EQ(embedding_bag(used.rows, used.places).shape(), (Shape{0, 3}));
    EXPECT_EQ(used_rows(t, full({}, 5, m, {}, DType::kI64)).places.shape(),
              Shape());
  });
}

TEST(UsedRows, DryRun) {
  RunOptions dry;
  dry.world = 2;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    const DistTensor t = ones({1000, 3}, rt.mesh(), "S0").as_parameter();
    const UsedRows used =
        used_rows(t, zeros({20, 5}, rt.mesh(), "S0", DType::kI64));
    EXPECT_EQ(used.rows.shape(), (Shape{104, 3}));
    const DistTensor y = embedding_bag(used.rows, used.places);
    EXPECT_EQ(grad(sum(y), {used.rows})[0].spec(), rows_spec(t, 104));
    // There are no more than the table has.
    EXPECT_EQ(used_rows(ones({7, 3}, rt.mesh()),
                        zeros({20, 5}, rt.mesh(), "S0", DType::kI64))
                  .rows.shape(),
              (Shape{8, 3}));
  });
}

// Gradients of rows lie as those of the table do.
TEST(UsedRows, HaveTheTablesGradLayout) {
  on_mesh("x=2", [](const Mesh& m) {
    DistTensor t = ones({9, 4}, m, "S0").as_parameter();
    t.set_grad_layout("S1");
    const UsedRows used = used_rows(t, zeros({6}, m, "S0", DType::kI64));
    const DistTensor d =
        grad(sum(embedding(used.rows, used.places)), {used.rows})[0];
    EXPECT_EQ(d.spec(), rows_spec(t, used.rows.size(0)));
    EXPECT_EQ(d.layout().to_string(m), "S1");
  });
}

TEST(UsedRows, Errors) {
  const auto error = [](const Shape& table, DType t, DType ids, double id) {
    return error_of(2, [&](const Mesh& m) {
      used_rows(full(table, 1, m, {}, t), full({4}, id, m, "S0", ids), 2);
    });
  };
  EXPECT_EQ(error({3, 2}, DType::kF32, DType::kI64, 3),
            "[used_rows] id 3 is not in [0, 3), the rows of the table; pass "
            "ids in that range");
  EXPECT_EQ(error({3, 2}, DType::kF32, DType::kI64, -1),
            "[used_rows] id -1 is not in [0, 3), the rows of the table; pass "
            "ids in that range");
  EXPECT_EQ(
      error({3}, DType::kF32, DType::kI64, 0),
      "[used_rows] the table is f32[3](R); pass a matrix of a float type");
  EXPECT_EQ(error({3, 2}, DType::kF32, DType::kF32, 0),
            "[used_rows] the ids are f32, but must be i32 or i64; write "
            "cast(ids, DType::kI64)");
  EXPECT_EQ(error({2, 2}, DType::kF32, DType::kI64, 0),
            "[used_rows] padding_idx is 2; write an id in [-2, 2)");
}

}  // namespace
}  // namespace dtensor::testing
