// SPDX-License-Identifier: Apache-2.0
// x[...] and index_put() on x [5, 4, 3] with the elements 0, 1, ..., 59: the
// elements that each list of indices selects are torch's.
#include "dtensor/ops/indices.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "dtensor/dtensor.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

using namespace dtensor::indexing;

// Index tensors and masks that the lists below use.
struct Given {
  DistTensor two, three, column, scalar, mask, rows, all;
};
Given given(const Mesh& mesh, const std::string& layout) {
  Array all = zeros_like({5, 4, 3}, DType::kBool);
  for (int64_t e = 0; e < 60; ++e) all.at(e) = e % 7 == 2;
  return {put(integers({2}, {3, 1}), mesh, layout),
          put(integers({2}, {0, 2}, DType::kI32), mesh, layout),
          put(integers({2, 1}, {0, -1}), mesh, layout),
          put(integers({}, {2}), mesh),
          put({{5, 4},
               {0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0},
               DType::kBool},
              mesh, layout),
          put({{4}, {1, 0, 0, 1}, DType::kBool}, mesh, layout),
          put(all, mesh, layout)};
}

struct Case {
  const char* text;
  std::function<IndexList(const Given&)> list;
  Shape shape;
  std::vector<int64_t> elements;
};

const std::vector<Case>& cases() {
  using G = const Given&;
  static const std::vector<Case> list = {
      {"0",
       [](G) -> IndexList { return 0; },
       {4, 3},
       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
      {"-1, 0",
       [](G) -> IndexList {
         return {-1, 0};
       },
       {3},
       {48, 49, 50}},
      {"4, -1, 0",
       [](G) -> IndexList {
         return {4, -1, 0};
       },
       {},
       {57}},
      {"1:3, 0, ::2",
       [](G) -> IndexList {
         return {Slice(1, 3), 0, Slice(None, None, 2)};
       },
       {2, 2},
       {12, 14, 24, 26}},
      {"-2:100, :2, 1",
       [](G) -> IndexList {
         return {Slice(-2, 100), Slice(None, 2), 1};
       },
       {2, 2},
       {37, 40, 49, 52}},
      {"3:1", [](G) -> IndexList { return Slice(3, 1); }, {0, 4, 3}, {}},
      {"..., -1, 1",
       [](G) -> IndexList {
         return {Ellipsis, -1, 1};
       },
       {5},
       {10, 22, 34, 46, 58}},
      {"2, ..., 1, 0",
       [](G) -> IndexList {
         return {2, Ellipsis, 1, 0};
       },
       {},
       {27}},
      {"None, 1, None, 3, ..., None",
       [](G) -> IndexList { return {None, 1, None, 3, Ellipsis, None}; },
       {1, 1, 3, 1},
       {21, 22, 23}},
      {"..., None, 0, 2",
       [](G) -> IndexList {
         return {Ellipsis, None, 0, 2};
       },
       {5, 1},
       {2, 14, 26, 38, 50}},
      {"two, :, 1",
       [](G g) -> IndexList {
         return {g.two, {}, 1};
       },
       {2, 4},
       {37, 40, 43, 46, 13, 16, 19, 22}},
      {"4:, column",
       [](G g) -> IndexList {
         return {Slice(4), g.column};
       },
       {1, 2, 1, 3},
       {48, 49, 50, 57, 58, 59}},
      {"two, :, three",
       [](G g) -> IndexList {
         return {g.two, {}, g.three};
       },
       {2, 4},
       {36, 39, 42, 45, 14, 17, 20, 23}},
      {"two, ..., three",
       [](G g) -> IndexList {
         return {g.two, Ellipsis, g.three};
       },
       {2, 4},
       {36, 39, 42, 45, 14, 17, 20, 23}},
      // As in torch; NumPy's shape is [2, 4].
      {"0, :, three",
       [](G g) -> IndexList {
         return {0, {}, g.three};
       },
       {4, 2},
       {0, 2, 3, 5, 6, 8, 9, 11}},
      {"two, 0, three",
       [](G g) -> IndexList {
         return {g.two, 0, g.three};
       },
       {2},
       {36, 14}},
      {":2, two, None, three",
       [](G g) -> IndexList {
         return {Slice(0, 2), g.two, None, g.three};
       },
       {2, 2, 1},
       {9, 21, 5, 17}},
      {"scalar, 1",
       [](G g) -> IndexList {
         return {g.scalar, 1};
       },
       {3},
       {27, 28, 29}},
      {"mask",
       [](G g) -> IndexList { return g.mask; },
       {4, 3},
       {6, 7, 8, 21, 22, 23, 36, 37, 38, 51, 52, 53}},
      {"mask, 1",
       [](G g) -> IndexList {
         return {g.mask, 1};
       },
       {4},
       {7, 22, 37, 52}},
      {"None, mask, ..., -1",
       [](G g) -> IndexList {
         return {None, g.mask, Ellipsis, -1};
       },
       {1, 4},
       {8, 23, 38, 53}},
      {"::3, rows, three",
       [](G g) -> IndexList {
         return {Slice(None, None, 3), g.rows, g.three};
       },
       {2, 2},
       {0, 11, 36, 47}},
      {"all",
       [](G g) -> IndexList { return g.all; },
       {9},
       {2, 9, 16, 23, 30, 37, 44, 51, 58}},
  };
  return list;
}

// Compares values and gradients in one layout with plain loops.
void check(const Case& c, const Mesh& mesh, const std::string& of_x,
           const std::string& of_indices) {
  const std::string what = std::string("x[") + c.text + "] of " + of_x +
                           " by " + of_indices + " on " + mesh.to_string();
  const Array x = values({5, 4, 3}, 1), dx = values({5, 4, 3}, 3),
              v = values(c.shape, 2), dy = values(c.shape, 4);
  Array y = zeros_like(c.shape), of_dy = zeros_like(x.shape), put_y = x,
        added = x, put_dx = dx, put_dv = y;
  for (size_t k = 0; k < c.elements.size(); ++k) {
    const int64_t e = c.elements[k], i = static_cast<int64_t>(k);
    y.at(i) = x.at(e), of_dy.at(e) = dy.at(i);
    put_y.at(e) = v.at(i), added.at(e) += v.at(i);
    put_dx.at(e) = 0, put_dv.at(i) = dx.at(e);
  }
  const IndexList list = c.list(given(mesh, of_indices));
  const DistTensor tx = put(x, mesh, of_x).set_requires_grad(),
                   tv = put(v, mesh).set_requires_grad();
  const DistTensor ty = tx[list];
  expect_near(array_of(ty.full()), y, 0, what);
  expect_near(array_of(grad(ty, {tx}, {.cotangent = put(dy, mesh)})[0].full()),
              of_dy, 0, what + ", gradient");

  const DistTensor replaced = index_put(tx, list, tv);
  expect_near(array_of(replaced.full()), put_y, 0, what + ", put");
  const auto g = grad(replaced, {tx, tv}, {.cotangent = put(dx, mesh)});
  expect_near(array_of(g[0].full()), put_dx, 0, what + ", dx of put");
  expect_near(array_of(g[1].full()), put_dv, 0, what + ", dv of put");
  expect_near(array_of(index_put(tx, list, tv, true).full()), added, 1e-15,
              what + ", added");

  const NoGrad no_grad;
  const DistTensor changed = clone(tx), handle = changed;
  index_put_(changed, list, tv);
  EXPECT_EQ(changed.spec(), tx.spec());
  expect_near(array_of(handle.full()), put_y, 0, what + ", in place");
}

TEST(Indices, AsInTorch) {
  for (const auto& [mesh, layouts] :
       std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"x=1", {"R"}},
           {"x=3", {"R", "S0", "S1", "S2"}},
           {"x=2,y=3", {"S0,S2", "S1,S0", "S0,S0", "R,S1"}}})
    on_mesh(mesh, [&, layouts = layouts](const Mesh& m) {
      for (const Case& c : cases())
        for (const std::string& layout : layouts) check(c, m, layout, "R");
    });
  on_mesh("x=2", [&](const Mesh& m) {
    for (const Case& c : cases()) check(c, m, "S0", "S0");
  });
}

// Numbers, values that broadcast, and other types than f64.
TEST(Indices, PutsNumbers) {
  on_mesh("x=3", [](const Mesh& mesh) {
    const DistTensor x = zeros({4, 3}, mesh, "S0");
    index_put_(x, {Slice(1, 3), -1}, 2);
    index_put_(x, 0, tensor({1., 2., 3.}, mesh));
    index_put_(x, eq(x, 0), -1);
    index_put_(x, {3, Slice()}, 0.5, true);
    expect_near(array_of(x.full()),
                {{4, 3}, {1, 2, 3, -1, -1, 2, -1, -1, 2, -.5, -.5, -.5}}, 0,
                "f32");
    const DistTensor b = zeros({3}, mesh, "S0", DType::kBool);
    index_put_(b, 1, true, true);
    EXPECT_EQ(values(b), (std::vector<double>{0, 1, 0}));
    const DistTensor y = x.redistribute({{"x", PartialOf()}});
    index_put_(y, {0, 0}, 7);
    EXPECT_EQ(y.to_string().substr(0, 20), "f32[4, 3](P) [[7, 2,");
  });
}

TEST(Indices, AreWindows) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const DistTensor x = put(values({4, 3, 2}, 1), mesh, "S0");
    EXPECT_EQ(sent([&] {
                x[0], x[{Slice(1), Ellipsis, 0}], x[{None, 2}];
                index_put(x, {1, 2}, x[{1, 0}]);
              }),
              0);
    EXPECT_TRUE(x[Ellipsis].same_as(x));
  });
}

TEST(Indices, Errors) {
  const auto error = [](auto&& call) {
    return error_of(2, [&](const Mesh& m) {
      call(put(values({3, 4}, 1), m, "S1"), m);
    });
  };
  using X = const DistTensor&;
  using M = const Mesh&;
  EXPECT_EQ(
      error([](X x, M) {
        x[{0, 1, 2}];
      }),
      "[index] got 3 indices for f64[3, 4](S1); pass at most one for each "
      "dimension");
  EXPECT_EQ(error([](X x, M) {
              x[{Ellipsis, Ellipsis}];
            }),
            "[index] got 2 Ellipses for f64[3, 4](S1); pass at most one");
  EXPECT_EQ(error([](X x, M) { x[-4]; }),
            "[select] index -4 is out of range for dimension 0 of f64[3, "
            "4](S1); write an index in [-3, 3)");
  EXPECT_EQ(error([](X x, M m) { index_put(x, 0, zeros({4}, m)); }),
            "[index_put] the values are f32, but the tensor is f64; write "
            "cast(values, x.dtype())");
  EXPECT_EQ(error([](X x, M) { index_put(x, 0, x); }),
            "[index_put] the values f64[3, 4](S1) do not fit the elements of "
            "f64[3, 4](S1) that the indices select; pass values of shape [4], "
            "or of one that broadcasts to it");
  EXPECT_EQ(error([](DistTensor x, M) {
              x.set_requires_grad();
              index_put_(x, 0, 1);
            }),
            "[index_put_] f64[3, 4](S1) requires a gradient, and a change in "
            "place is not recorded; make a new tensor, as in x = x + y, or "
            "open a NoGrad scope");
}

// x[0] = y would change a temporary, so that it does not compile.
static_assert(std::is_assignable_v<DistTensor&, DistTensor>);
static_assert(!std::is_assignable_v<DistTensor, DistTensor>);
static_assert(!std::is_convertible_v<bool, TensorIndex>);

}  // namespace
}  // namespace dtensor::testing
