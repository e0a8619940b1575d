// SPDX-License-Identifier: Apache-2.0
// Values that torch's cases of diagonals, differences, ranges and of functions
// that rearrange elements leave out, and the errors of these functions.
#include "dtensor/ops/rearrange.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/diagonal.h"
#include "dtensor/ops/differences.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/ranges.h"
#include "dtensor/ops/view.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::values;
using Values = std::vector<double>;
const char* const kLayouts[] = {"R", "S0", "S1", "S2", "P"};

// 0, 1, 2, ... in this shape.
DistTensor counted(const Shape& shape, const Mesh& mesh, const Placements& p) {
  return view(arange(numel(shape), mesh, {}, DType::kF64), shape)
      .redistribute(p);
}

TEST(Rearrange, PixelShuffle) {
  run(3, [](Runtime& rt) {
    const int64_t c = 3, r = 2, h = 5, w = 7;
    Values want;
    for (int64_t i = 0; i < c; ++i)
      for (int64_t y = 0; y < h * r; ++y)
        for (int64_t x = 0; x < w * r; ++x) {
          const int64_t channel = (i * r + y % r) * r + x % r;
          want.push_back(
              static_cast<double>((channel * h + y / r) * w + x / r));
        }
    for (const char* layout : kLayouts) {
      const DistTensor x = counted({c * r * r, h, w}, rt.mesh(), layout),
                       y = pixel_shuffle(x, r);
      EXPECT_EQ(y.shape(), (Shape{c, h * r, w * r}));
      EXPECT_EQ(values(y), want) << layout;
      EXPECT_EQ(values(pixel_unshuffle(y, r)), values(x)) << layout;
    }
  });
}

TEST(Rearrange, WindowsOfASplitDimension) {
  run(3, [](Runtime& rt) {
    const int64_t n = 11;
    for (const char* layout : {"R", "S0", "S1", "P"})
      for (int64_t size : {1, 2, 5, 11})
        for (int64_t step : {1, 2, 7}) {
          const DistTensor x = counted({n, 2}, rt.mesh(), layout);
          Values want;
          for (int64_t i = 0; i + size <= n; i += step)
            for (int64_t j = 0; j < 2; ++j)
              for (int64_t k = 0; k < size; ++k)
                want.push_back(static_cast<double>((i + k) * 2 + j));
          EXPECT_EQ(values(unfold(x, 0, size, step)), want)
              << layout << " " << size << " " << step;
        }
  });
}

TEST(Rearrange, ADiagonalSendsNoMatrix) {
  run(4, [](Runtime& rt) {
    for (const auto& [layout, wanted] :
         {std::pair{"S0", "S0@0|3|6|9|11"}, {"S1", "P"}, {"P", "P"}}) {
      const DistTensor x = counted({12, 12}, rt.mesh(), layout);
      const CommRecord record;
      const DistTensor y = diagonal(x, 1);
      EXPECT_TRUE(record.events().empty()) << layout;
      EXPECT_EQ(y.layout().to_string(rt.mesh()), wanted);
    }
  });
}

// In the second row, and then in the third one; above the diagonal, from the
// second column on.
TEST(Rearrange, DiagonalsThatAreReplaced) {
  run(2, [](Runtime& rt) {
    for (const char* layout : {"R", "S0", "S1"}) {
      const DistTensor x = zeros({3, 3}, rt.mesh(), layout),
                       src = arange(2, rt.mesh(), {}, DType::kF32) + 1;
      EXPECT_EQ(values(diagonal_scatter(x, src, -1)),
                (Values{0, 0, 0, 1, 0, 0, 0, 2, 0}))
          << layout;
      EXPECT_EQ(values(diagonal_scatter(x, src, 1)),
                (Values{0, 1, 0, 0, 0, 2, 0, 0, 0}))
          << layout;
    }
  });
}

TEST(Rearrange, Indices) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    EXPECT_EQ(values(tril_indices(3, 4, -1, mesh)), (Values{1, 2, 2, 0, 0, 1}));
    EXPECT_EQ(values(tril_indices(3, 2, 1, mesh, "S1", DType::kI32)),
              (Values{0, 0, 1, 1, 2, 2, 0, 1, 0, 1, 0, 1}));
    EXPECT_EQ(values(triu_indices(3, 4, 1, mesh)),
              (Values{0, 0, 0, 1, 1, 2, 1, 2, 3, 2, 3, 3}));
    EXPECT_EQ(tril_indices(2, 3, -9, mesh).shape(), (Shape{2, 0}));
    EXPECT_EQ(triu_indices(2, 3, -9, mesh).shape(), (Shape{2, 6}));
    const auto at = unravel_index(arange(24, mesh, "S0"), {2, 3, 4});
    EXPECT_EQ(values(add(mul(at[0], 12), add(mul(at[1], 4), at[2]))),
              values(arange(24, mesh)));
    EXPECT_EQ(values(linspace(0.9, 1.9, 3, mesh, {}, DType::kI64)),
              (Values{0, 0, 1}));
  });
}

TEST(Rearrange, APowerOfZeroHasAGradient) {
  run(2, [](Runtime& rt) {
    DistTensor x = counted({3}, rt.mesh(), "S0").set_requires_grad();
    const DistTensor y = vander(x, 4);
    EXPECT_EQ(values(y), (Values{1, 0, 0, 0, 1, 1, 1, 1, 1, 2, 4, 8}));
    // 1 + 2 x + 3 x^2
    EXPECT_EQ(values(grad(sum(y), {x})[0]), (Values{1, 6, 17}));
  });
}

TEST(Rearrange, ErrorsSayWhatToWrite) {
  run(2, [](Runtime& rt) {
    const DistTensor x = counted({3, 4}, rt.mesh(), {}),
                     v = counted({4}, rt.mesh(), {}),
                     cube = counted({1, 3, 4}, rt.mesh(), {}), none,
                     flags = gt(x, 0), two = arange(2, rt.mesh());
    const struct {
      std::function<void()> call;
      const char* want;
    } refused[] = {
        {[&] { diagonal(v); },
         "[diagonal] dimension 1 is out of range; write -1 to 0"},
        {[&] { diagonal(x, 0, 1, -1); },
         "[diagonal] dim1 is 1 and dim2 is -1, which are the same dimension; "
         "write two different ones"},
        {[&] { diag(cube); },
         "[diag] f64[1, 3, 4](R) is not a vector or a matrix; write "
         "diagonal() "
         "or diag_embed()"},
        {[&] { diagonal_scatter(x, v); },
         "[diagonal_scatter] cannot put f64[4](R) into a diagonal of f64[3, "
         "4](R); write a tensor of the same type and of shape [3]"},
        {[&] { block_diag(cube); },
         "[block_diag] f64[1, 3, 4](R) has more than two dimensions; pass "
         "matrices"},
        {[&] { diff(x, -1); }, "[diff] n is -1; write 0 or more"},
        {[&] { gradient(x, 1, {0}, 3); },
         "[gradient] edge_order is 3; write 1 or 2"},
        {[&] {
           gradient(x, std::vector<double>{1, 1}, {0});
         },
         "[gradient] the list of spacings has length 2, but there are 1 "
         "dimensions; write one for each"},
        {[&] { gradient(x, TensorList(v), {0}); },
         "[gradient] the coordinates f64[4](R) do not fit dimension 0 of "
         "f64[3, 4](R); pass a vector with one position for each element"},
        {[&] { gradient(slice(x, 0, 0, 1)); },
         "[gradient] dimension 0 of f64[1, 4](R) has fewer than 2 elements, "
         "which edge_order 1 needs; pass more elements"},
        {[&] { trapezoid(x, v, 0); },
         "[trapezoid] the positions f64[4](R) do not fit f64[3, 4](R); pass "
         "one position for each element along dimension 0"},
        {[&] { cumulative_trapezoid(flags); },
         "[cumulative_trapezoid] bool[3, 4](R) has no integral; write "
         "cast(y, "
         "DType::kF32)"},
        {[&] {
           pad(x, {4, 0}, PadMode::kReflect);
         },
         "[pad] widths 4 and 0 are too large for dimension 1 of f64[3, "
         "4](R); "
         "write at most 3"},
        {[&] {
           pad(x, {-2, 3}, PadMode::kCircular);
         },
         "[pad] widths -2 and 3 are too large for dimension 1 of f64[3, "
         "4](R); "
         "write at most 2"},
        {[&] {
           pad(x, {-5, 0}, PadMode::kReplicate);
         },
         "[pad] widths -5 and 0 cut more than dimension 1 of f64[3, 4](R) "
         "has; "
         "write widths that cut fewer of its 4 indices"},
        {[&] { pixel_shuffle(cube, 2); },
         "[pixel_shuffle] 2 does not divide dimension 0 of f64[1, 3, 4](R) "
         "twice; write a number that divides its size 1 twice"},
        {[&] { pixel_shuffle(cube, int64_t{1} << 32); },
         "[pixel_shuffle] 4294967296 does not divide dimension 0 of f64[1, 3, "
         "4](R) twice; write a number that divides its size 1 twice"},
        {[&] { pixel_unshuffle(cube, int64_t{1} << 62); },
         "[pixel_unshuffle] 4611686018427387904 does not divide dimension 2 of "
         "f64[1, 3, 4](R); write a number that divides its size 4"},
        {[&] { channel_shuffle(x, 2); },
         "[channel_shuffle] f64[3, 4](R) has too few dimensions; pass a "
         "tensor "
         "with at least three"},
        {[&] { unfold(x, 0, 4, 1); },
         "[unfold] size is 4 and step is 1, but dimension 0 of f64[3, 4](R) "
         "has size 3; write a size from 1 to that, and a step of at least 1"},
        {[&] { rot90(x, 1, {0}); },
         "[rot90] the list of dimensions has length 1; write two dimensions"},
        {[&] { combinations(x); },
         "[combinations] got f64[3, 4](R) and r = 2; pass a vector, and 0 or "
         "more"},
        {[&] {
           cartesian_prod({v, x});
         },
         "[cartesian_prod] f64[3, 4](R) is not a vector; pass tensors of one "
         "dimension"},
        {[&] { narrow(x, 0, v, 1); },
         "[narrow] the start is f64[4](R); pass an i32 or i64 tensor without "
         "dimensions"},
        {[&] { linspace(two, two, 3); },
         "[linspace] an end is i64[2](R); pass a tensor without dimensions"},
        {[&] { vander(two, 1); }, "[vander] n is 1; write at least 2"},
        {[&] { tril_indices(-1, 2, 0, rt.mesh()); },
         "[tril_indices] rows is -1 and columns is 2; write 0 or more"},
        {[&] {
           unravel_index(two, {0, 3});
         },
         "[unravel_index] a tensor of shape [0, 3] has no elements; write "
         "sizes of at least 1"},
    };
    for (const auto& [call, want] : refused)
      EXPECT_EQ(testing::error_of(call), want);
    const struct {
      std::function<void()> call;
      const char* op;
    } undefined[] = {
        {[&] { diagonal(none); }, "diagonal"},
        {[&] { diag_embed(none); }, "diag_embed"},
        {[&] { diag(none); }, "diag"},
        {[&] { diagflat(none); }, "diagflat"},
        {[&] { diagonal_scatter(none, v); }, "diagonal_scatter"},
        {[&] { block_diag(none); }, "block_diag"},
        {[&] { diff(none); }, "diff"},
        {[&] { gradient(none); }, "gradient"},
        {[&] { trapezoid(none); }, "trapezoid"},
        {[&] { cumulative_trapezoid(none); }, "cumulative_trapezoid"},
        {[&] {
           pad(none, {1, 1}, PadMode::kReflect);
         },
         "pad"},
        {[&] { unfold(none, 0, 1, 1); }, "unfold"},
        {[&] { rot90(none); }, "rot90"},
        {[&] { cartesian_prod(none); }, "cartesian_prod"},
        {[&] { combinations(none); }, "combinations"},
        {[&] { pixel_shuffle(none, 2); }, "pixel_shuffle"},
        {[&] { pixel_unshuffle(none, 2); }, "pixel_unshuffle"},
        {[&] { channel_shuffle(none, 2); }, "channel_shuffle"},
        {[&] { narrow(none, 0, v, 1); }, "narrow"},
        {[&] { linspace(none, none, 3); }, "linspace"},
        {[&] { logspace(none, none, 3); }, "logspace"},
        {[&] { vander(none); }, "vander"},
        {[&] { unravel_index(none, {3}); }, "unravel_index"},
    };
    for (const auto& [call, op] : undefined) {
      const std::string said = testing::error_of(call);
      EXPECT_TRUE(said.starts_with(std::string("[") + op + "] input 0 of "))
          << said;
      EXPECT_NE(said.find("is an undefined tensor"), std::string::npos) << said;
    }
  });
}

}  // namespace
}  // namespace dtensor
