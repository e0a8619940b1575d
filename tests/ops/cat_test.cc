// SPDX-License-Identifier: Apache-2.0
// cat(): every rank joins its own parts end to end; most layouts send nothing.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dtensor/comm_event.h"
#include "dtensor/dtensor.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/ops/parts_testing.h"

namespace dtensor {
namespace {

using namespace dtensor::testing;

constexpr const char* kMeshes[] = {"x=2", "x=3", "x=2,y=2"};

// End to end along a dimension, by loops.
Array joined(const std::vector<Array>& pieces, int dim) {
  Array all;
  all.shape = pieces[0].shape;
  all.shape[dim] = 0;
  int64_t outer = 1;
  for (int d = 0; d < dim; ++d) outer *= all.shape[d];
  for (const Array& p : pieces) all.shape[dim] += p.shape[dim];
  for (int64_t o = 0; o < outer; ++o)
    for (const Array& p : pieces) {
      int64_t n = numel(p.shape) / std::max<int64_t>(outer, 1);
      for (int64_t i = 0; i < n; ++i) all.v.push_back(p.at(o * n + i));
    }
  return all;
}

// True if a and b agree in everything but dimension `dim`, and the axes that
// split `dim` do nothing else in either. cat() along `dim` then sends nothing.
bool agree(const Layout& a, const Layout& b, int dim) {
  AxisMask others = 0, along = 0;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (static_cast<int>(d) == dim) {
      along |= a.dims[d].axes() | b.dims[d].axes();
      continue;
    }
    if (a.dims[d] != b.dims[d]) return false;
    others |= a.dims[d].axes();
  }
  return a.partials == b.partials && !((others | a.partial_axes()) & along);
}

// Checks values and gradients for every pair of layouts. If agree() is true of
// the pair, nothing is sent forward or backward.
TEST(Cat, EveryPairOfLayouts) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      for (int dim : {0, 1}) {
        Shape one{4, 3}, two{4, 3};
        one[dim] = 5, two[dim] = 2;
        const Array a = counted(one), b = counted(two, 100);
        const Array want = joined({a, b}, dim), dy = values(want.shape, 2);
        int64_t free = 0;
        for (const Layout& la : every_layout(mesh, one))
          for (const Layout& lb : every_layout(mesh, two)) {
            DistTensor x = put(a, mesh, la).set_requires_grad();
            DistTensor y = put(b, mesh, lb).set_requires_grad();
            const std::string what =
                fmt::format("{} and {} along {}", x.spec()->to_string(),
                            y.spec()->to_string(), dim);
            std::optional<NoComm> none;
            if (agree(x.layout(), y.layout(), dim)) none.emplace(), ++free;
            DistTensor z = cat({x, y}, dim);
            GradOptions options;
            options.cotangent = cotangent_like(z, dy);
            std::vector<DistTensor> grads = grad(z, {x, y}, options);
            none.reset();
            expect_parts(z, want, what);
            std::vector<Array> parts{array_of(grads[0].full()),
                                     array_of(grads[1].full())};
            expect_near(joined(parts, dim), dy, 0, what + ", gradients");
            if (::testing::Test::HasFatalFailure()) return;
          }
        EXPECT_GT(free, 20);
      }
    });
}

// The local part of the result is the pieces' local parts, end to end, even if
// the pieces' dims are concatenations or products.
TEST(Cat, LocalPartsEndToEnd) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{6};
      const std::vector<Layout> layouts = every_layout(mesh, shape, false);
      for (size_t i = 0; i < layouts.size(); ++i) {
        NoComm none;
        std::vector<DistTensor> pieces;
        std::vector<Array> parts;
        for (size_t k : {i, (i * 5 + 3) % layouts.size(), size_t{0}}) {
          pieces.push_back(
              put(counted(shape, 10 * static_cast<int>(k)), mesh, layouts[k]));
          parts.push_back(array_of(pieces.back().local()));
        }
        DistTensor y = cat(pieces);
        expect_near(array_of(y.local()), joined(parts, 0), 0,
                    y.spec()->to_string());
        // Results computed from y, and chunks of these, have y's layout.
        DistTensor z = cat({y * 2.0, y + y});
        for (const DistTensor& p : chunk(z, 2)) EXPECT_EQ(p.spec(), y.spec());
      }
    });
}

// Operators take the result of cat() in the layout that it has.
TEST(Cat, WhatFollowsSendsNothing) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape one{4, 5}, two{4, 3};
      for (const Layout& la : every_layout(mesh, one, false))
        for (const Layout& lb : every_layout(mesh, two, false)) {
          DistTensor a = put(values(one, 1), mesh, la).set_requires_grad();
          DistTensor b = put(values(two, 2), mesh, lb).set_requires_grad();
          if (!agree(a.layout(), b.layout(), 1)) continue;
          DistTensor bias = put(values({8}, 3), mesh, "R");
          const Array all = joined({values(one, 1), values(two, 2)}, 1);
          DistTensor y, z;
          Array dz = values({4, 8}, 4);
          std::vector<DistTensor> grads;
          {
            NoComm none;
            y = cat({a, b}, 1);
            z = gelu((y + y) * bias);
            EXPECT_EQ(z.spec(), y.spec());
            GradOptions options;
            options.cotangent = cotangent_like(z, dz);
            grads = grad(z, {a, b}, options);
          }
          EXPECT_EQ(grads[0].spec(), a.spec());
          EXPECT_EQ(grads[1].spec(), b.spec());
          // The same computation with whole tensors on every rank.
          DistTensor u = put(all, mesh, "R").set_requires_grad();
          DistTensor v = gelu((u + u) * bias);
          DistTensor du = gradient_of(v, u, put(dz, mesh, "R"));
          const std::string what = y.spec()->to_string();
          expect_near(array_of(z.full()), array_of(v.local()), 1e-14, what);
          expect_near(
              joined({array_of(grads[0].full()), array_of(grads[1].full())}, 1),
              array_of(du.local()), 1e-14, what);
          // A sum, a softmax and a product over the joined dimension, with
          // their collectives.
          expect_near(array_of(sum(y, {1}).full()),
                      array_of(sum(u, {1}).local()), 1e-13, what + " sum");
          expect_near(array_of(softmax(y, 1).full()),
                      array_of(softmax(u, 1).local()), 1e-14,
                      what + " softmax");
          DistTensor w = put(values({8, 2}, 6), mesh, "R");
          expect_near(array_of(matmul(y, w).full()),
                      array_of(matmul(u, w).local()), 1e-13, what + " matmul");
          expect_near(array_of(reshape(y, {2, 16}).full()),
                      array_of(reshape(u, {2, 16}).local()), 0,
                      what + " reshape");
          if (::testing::Test::HasFatalFailure()) return;
        }
    });
}

// Pitfall 13 (PyTorch #168134): [0..4] in segments of 3 and 2 elements, each
// cut into two chunks. One rank has 0, 1, 3 and 4, the other has 2.
TEST(Cat, InterleavedUneven) {
  on_mesh("x=2", [](const Mesh& mesh) {
    NoComm none;
    DistTensor y = cat({put(counted({3}, 0), mesh, "S0@0|2|3"),
                        put(counted({2}, 3), mesh, "S0@0|2|2")});
    const bool first = RankContext::current().coordinate(mesh)[0] == 0;
    Array want{first ? Shape{4} : Shape{1}, {}};
    want.v = first ? std::vector<double>{0, 1, 3, 4} : std::vector<double>{2};
    expect_near(array_of(y.local()), want, 0, "local part");
    expect_parts(y, counted({5}, 0), "values");
  });
}

// A rank has all of a whole piece and its part of a split one.
TEST(Cat, WholeAndSplit) {
  on_mesh("x=3", [](const Mesh& mesh) {
    DistTensor whole = put(counted({2}), mesh, "R").set_requires_grad();
    DistTensor cut = put(counted({6}, 3), mesh, "S0").set_requires_grad();
    DistTensor y;
    {
      NoComm none;
      y = cat({whole, cut, whole});
      EXPECT_EQ(y.local().numel(), 6);
    }
    expect_parts(y, joined({counted({2}), counted({6}, 3), counted({2})}, 0),
                 "values");
    // Every element counts once.
    EXPECT_EQ(sum(y).item(), 3 + 33 + 3);
    EXPECT_DOUBLE_EQ(mean(square(y)).item(), (5 + 199 + 5) / 10.0);
    std::vector<DistTensor> grads = grad(sum(square(y)), {whole, cut});
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_EQ(grads[0].local().at(i), 4.0 * static_cast<double>(i + 1));
    EXPECT_EQ(grads[1].spec(), cut.spec());
  });
}

TEST(Cat, PartialsTogether) {
  on_mesh("x=2,y=2", [](const Mesh& mesh) {
    const Array a = counted({3, 2}), b = counted({4, 2}, 20);
    const Array want = joined({a, b}, 0);
    for (const char* l : {"P,R", "P(max),R", "P(min),S1", "P(avg),S0", "P,P"}) {
      NoComm none;
      DistTensor y = cat({put(a, mesh, l), put(b, mesh, l)});
      EXPECT_EQ(y.spec()->partial_axes(),
                put(a, mesh, l).spec()->partial_axes());
    }
    // Only one piece is partial. The other one must not be summed over the
    // ranks.
    DistTensor y = cat({put(a, mesh, "P,R"), put(b, mesh, "R,R")});
    expect_parts(y, want, "P and R");
    expect_parts(cat({put(a, mesh, "P,S0"), put(b, mesh, "P(max),S0")}), want,
                 "P and P(max)");
    expect_parts(cat({put(a, mesh, "P(mean),R"), put(b, mesh, "P(mean),R")}),
                 want, "means");
  });
}

// An axis splits the joined dimension of one piece, and another dimension of
// the other piece. The smaller piece moves, in one exchange of the elements
// that a rank lacks.
TEST(Cat, ClashingAxesMeetAtTheLargest) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const Array a = counted({64, 4}), b = counted({2, 4}, 500);
    RankContext& ctx = RankContext::current();
    ctx.record = true;
    DistTensor y = cat({put(b, mesh, "S0"), put(a, mesh, "S1")});
    EXPECT_EQ(y.layout().to_string(mesh), "S1");
    EXPECT_EQ(ctx.events.size(), 1u);
    for (const CommEvent& e : ctx.events) EXPECT_EQ(e.predicted, 2 * 8);
    expect_parts(y, joined({b, a}, 0), "largest last");
    ctx.events.clear();
    y = cat({put(a, mesh, "S0"), put(b, mesh, "S1")});
    expect_parts(y, joined({a, b}, 0), "largest first");
    for (const CommEvent& e : ctx.events) EXPECT_EQ(e.predicted, 2 * 8);
    // A parameter stays where it is, however small.
    DistTensor p = put(b, mesh, "S1").as_parameter();
    y = cat({put(a, mesh, "S0"), p});
    EXPECT_EQ(y.layout().to_string(mesh), "S1");
    expect_parts(y, joined({a, b}, 0), "parameter");
  });
}

TEST(Cat, ManyPiecesAndNone) {
  on_mesh("x=3", [](const Mesh& mesh) {
    std::vector<DistTensor> pieces;
    std::vector<Array> arrays;
    for (int i = 0; i < 37; ++i) {
      arrays.push_back(counted({2, i % 4}, 10 * i));
      pieces.push_back(put(arrays.back(), mesh,
                           i % 3   ? "S1"
                           : i % 2 ? "R"
                                   : "S0"));
    }
    expect_parts(cat(pieces, -1), joined(arrays, 1), "37 pieces");
    EXPECT_EQ(cat({pieces[0]}).local().storage(), pieces[0].local().storage());
  });
}

TEST(Cat, Stack) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{3, 5};
      for (const Layout& layout : every_layout(mesh, shape))
        for (int dim = -3; dim < 3; ++dim) {
          const int d = dim < 0 ? dim + 3 : dim;
          std::vector<DistTensor> x;
          std::vector<Array> thick;
          for (int i = 0; i < 3; ++i) {
            Array a = counted(shape, 100 * i);
            x.push_back(put(a, mesh, layout).set_requires_grad());
            a.shape.insert(d, 1);
            thick.push_back(a);
          }
          NoComm none;
          DistTensor y = stack(x, dim);
          const Array want = joined(thick, d), dy = values(want.shape, 7);
          DistTensor dx = gradient_of(y, x[1], cotangent_like(y, dy));
          EXPECT_EQ(dx.spec()->split_axes(), x[1].spec()->split_axes());
          if (y.spec()->partial_axes() == 0) {
            expect_parts(y, want, x[0].spec()->to_string());
            DistTensor alone = select(y.detach(), d, 1);
            expect_parts(alone, counted(shape, 100), "selected");
          }
          if (::testing::Test::HasFatalFailure()) return;
        }
    });
}

TEST(Cat, WrongUseIsASentence) {
  auto says = [](const char* part, std::function<void(const Mesh&)> fn) {
    std::string m = error_of(2, fn);
    EXPECT_NE(m.find(part), m.npos) << m;
  };
  auto x = [](const Mesh& mesh, const Shape& s, const char* l = "S0") {
    return put(counted(s), mesh, l);
  };
  says(
      "[cat] cannot join f64[4, 6](S0) and f64[4, 5](S0) along dimension 0; "
      "give them the same number of dimensions, and equal sizes in all others",
      [&](const Mesh& m) {
        cat({x(m, {4, 6}), x(m, {4, 5})});
      });
  says("[cat]", [&](const Mesh& m) { cat({x(m, {4}), x(m, {4, 5})}); });
  says("[cat] got an empty list", [&](const Mesh&) { cat({}); });
  says("[cat] f64[4](S0) and i64[4](S0) have different types; cast them to one",
       [&](const Mesh& m) {
         cat({x(m, {4}), cast(x(m, {4}), DType::kI64)});
       });
  says("[stack] f64[4](S0) and f64[5](S0) have different shapes",
       [&](const Mesh& m) {
         stack({x(m, {4}), x(m, {5})});
       });
  says("without sending a parameter", [&](const Mesh& m) {
    cat({x(m, {4, 4}).as_parameter(), x(m, {4, 4}, "S1").as_parameter()});
  });
}

// The layout of cat() depended on whether an empty piece required a gradient.
// In checkpoint()'s second run it does, so checkpoint() refused that run.

TEST(RecomputedCat, OfAnEmptyPieceHasOneLayout) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"x", 2}});
    const auto empty = zeros({0}, mesh, "S0", DType::kF64).set_requires_grad();
    const auto x = ones({2}, mesh, "P", DType::kF64).set_requires_grad();
    const auto y = checkpoint(
        [&](const DistTensor& v) {
          return cat({v, mul(empty, 2.0)}, 0);
        },
        x);
    EXPECT_EQ(y.shape(), Shape{2});
    const auto g = grad(sum(y), {x, empty});
    EXPECT_EQ(g[0].to_string(), "f64[2](R) [1, 1]");
    EXPECT_EQ(g[1].shape(), Shape{0});
  });
}

}  // namespace
}  // namespace dtensor
