// SPDX-License-Identifier: Apache-2.0
// Compares with plain loops, in layouts of split rows and columns.
#include "dtensor/ops/data_shapes.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/create.h"
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
      EXPECT_EQ(values(masked_select(gt(x, 5), gt(x, 2))), signs);
    });
}

TEST(MaskedSelect, SendsOnlyNumbersOfElements) {
  on_mesh("x=4", [](const Mesh& mesh) {
    const DistTensor x = put(values({1024, 8}, 3), mesh, "S0");
    const DistTensor mask = gt(x, 0);
    CommRecord record;
    const DistTensor y = masked_select(x, mask), at = nonzero(flatten(mask));
    int64_t bytes = 0;
    for (const CommEvent& e : record.events()) bytes += e.counted;
    // x has 65536 bytes.
    EXPECT_LE(bytes, 8 * y.size(0) * 2 + 200);
    EXPECT_EQ(at.size(0), y.size(0));
  });
}

TEST(MaskedSelect, DryRun) {
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    const DistTensor x = zeros({5, 7}, rt.mesh(), "S0");
    EXPECT_EQ(masked_select(x, gt(x, 0)).shape(), Shape{0});
    EXPECT_EQ(nonzero(x).shape(), (Shape{0, 2}));
    EXPECT_EQ(masked_scatter(x, gt(x, 0), x).shape(), (Shape{5, 7}));
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

}  // namespace
}  // namespace dtensor::testing
