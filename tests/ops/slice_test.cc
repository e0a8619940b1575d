// SPDX-License-Identifier: Apache-2.0
// Slices stay with the ranks that own the elements: nothing is sent.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/owned.h"
#include "dtensor/rank_context.h"
#include "dtensor/scopes.h"
#include "tests/ops/parts_testing.h"

namespace dtensor {
namespace {

using namespace dtensor::testing;

constexpr const char* kMeshes[] = {"x=2", "x=3", "x=2,y=2", "x=2,y=3"};

// The indices lo, lo + step, ... below hi of a dimension, by loops.
Array sliced(const Array& x, int dim, int64_t lo, int64_t hi, int64_t step) {
  Array y = x;
  y.shape[dim] = hi > lo ? (hi - lo + step - 1) / step : 0;
  y.v.clear();
  int64_t inner = 1;
  for (int d = dim + 1; d < x.shape.size(); ++d) inner *= x.shape[d];
  for (int64_t i = 0; i < numel(x.shape); ++i) {
    int64_t at = i / inner % x.shape[dim];
    if (at >= lo && at < hi && (at - lo) % step == 0) y.v.push_back(x.at(i));
  }
  return y;
}

// The gradient: dy where the slice was, zeros elsewhere.
Array padded(const Array& dy, const Shape& shape, int dim, int64_t lo,
             int64_t hi, int64_t step) {
  Array which = sliced(counted(shape, 0), dim, lo, hi, step);
  Array dx = zeros_like(shape);
  for (size_t i = 0; i < which.v.size(); ++i)
    dx.at(static_cast<int64_t>(which.v[i])) = dy.v[i];
  return dx;
}

// Only a step through sub-dimensions or segments may gather.
bool may_gather(const DistTensor& x, int dim, int64_t step) {
  return step > 1 && x.spec()->dim(dim).kind() != Dim::Kind::kLeaf;
}

TEST(Slice, KeepsItsOwnersAndSoDoesItsGradient) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      for (const Shape& shape :
           {Shape{7}, Shape{5, 3}, Shape{4, 6}, Shape{1, 2}, Shape{0, 3}})
        for (const Layout& layout : every_layout(mesh, shape)) {
          const Array whole = counted(shape);
          DistTensor x = put(whole, mesh, layout).set_requires_grad();
          for (int dim = 0; dim < shape.size(); ++dim) {
            const int64_t n = shape[dim];
            for (auto [lo, hi, step] :
                 {std::tuple<int64_t, int64_t, int64_t>{0, n / 2, 1},
                  {n / 2, n, 1},
                  {1, n - 1, 1},
                  {n - 1, n, 1},
                  {n, n, 1},
                  {0, n, 2},
                  {1, n, 3}}) {
              if (lo < 0 || hi < lo || lo > n) continue;
              const std::string what =
                  fmt::format("{} [{}:{}:{}] of {}", x.spec()->to_string(), lo,
                              hi, step, dim);
              Array want = sliced(whole, dim, lo, hi, step);
              Array dwant = values(want.shape, 3);
              std::optional<NoComm> none;
              if (!may_gather(x, dim, step)) none.emplace();
              DistTensor y = slice(x, dim, lo, hi, step);
              DistTensor dy = cotangent_like(y, dwant);
              DistTensor dx = gradient_of(y, x, dy);
              Layout like = x.layout();
              like.partials.clear();
              EXPECT_EQ(dx.spec(), x.spec()->with(like)) << what;
              expect_parts(dx, padded(dwant, shape, dim, lo, hi, step), what);
              none.reset();
              expect_parts(y, want, what);
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
        }
    });
}

// The gradient's cotangent may come in any layout.
TEST(Slice, GradientsOfAnyCotangent) {
  for (const char* text : {"x=3", "x=2,y=2"})
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{5, 6};
      for (const Layout& layout : every_layout(mesh, shape, false)) {
        DistTensor x = put(counted(shape), mesh, layout).set_requires_grad();
        DistTensor y = slice(x, 0, 1, 4);
        Array dy = values({3, 6}, 5);
        for (const Layout& l : every_layout(mesh, {3, 6})) {
          DistTensor dx = gradient_of(y, x, put(dy, mesh, l));
          Array want = padded(dy, shape, 0, 1, 4, 1);
          Array got = array_of(dx.full());
          expect_near(got, want, 1e-14, x.spec()->to_string());
        }
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
}

// Pitfall 1: five rows over four ranks are five rows, however they are taken.
TEST(Slice, FiveRowsOverFourRanks) {
  for (const char* text : {"x=4", "x=2,y=2"})
    on_mesh(text, [](const Mesh& mesh) {
      const char* layout = mesh.num_axes() == 1 ? "S0" : "S0,S0";
      const Array whole = counted({5, 2});
      DistTensor x = put(whole, mesh, layout);
      std::vector<DistTensor> rows;
      {
        NoComm none;
        for (int64_t i = 0; i < 5; ++i) rows.push_back(narrow(x, 0, i, 1));
      }
      int64_t had = 0;
      for (const DistTensor& r : rows) had += r.local().numel();
      EXPECT_EQ(had, x.local().numel());
      expect_near(array_of(cat(rows, 0).full()), whole, 0, "rows");
      EXPECT_EQ(cat(rows, 0).spec(), x.spec());
    });
}

// Pitfall 17: columns of 2, 3, 4 and 5 over four ranks are 14 columns. Slices
// of them are right, even if some ranks have no part of a slice.
TEST(Slice, UnevenColumnsRoundTrip) {
  on_mesh("x=4", [](const Mesh& mesh) {
    const Array whole = counted({2, 14});
    DistTensor x = put(whole, mesh, "S1@0|2|5|9|14");
    const int64_t widths[] = {2, 3, 4, 5};
    EXPECT_EQ(x.local().shape()[1],
              widths[RankContext::current().coordinate(mesh)[0]]);
    expect_near(array_of(x.full()), whole, 0, "all of it");
    NoComm none;
    DistTensor y = narrow(x, 1, 3, 4);
    EXPECT_EQ(y.layout().to_string(mesh), "S1@0|0|2|4|4");
    expect_parts(y, sliced(whole, 1, 3, 7, 1), "columns 3 to 7");
    expect_parts(slice(x, -1, -14, -5, 4), sliced(whole, 1, 0, 9, 4), "step 4");
  });
}

// Two ranges that lie apart in the tensor may touch in a rank's memory; a slice
// of both is a view.
TEST(Slice, OfNeighboursInMemoryIsAView) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = Mesh::parse("x=2");
    Layout zig = Layout::replicated({8, 3});
    zig.dims[0] = zigzag(8, mesh, 0);  // rank 0 has 0, 1, 6, 7
    const DistTensor x = put(counted({8, 3}, 0), mesh, zig.to_string(mesh));
    const DistTensor y = slice(x, 0, 1, 8);
    const Tensor mine = rt.rank() == 0 ? x.local().slice(0, 1, 4) : x.local();
    EXPECT_EQ(y.local().shape(), mine.shape());
    EXPECT_EQ(y.local().data(), mine.data());
  });
}

// Indexes a dimension that is split (oneflow#7020), and one that is not.
TEST(Slice, SelectKeepsItsOwner) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{5, 4, 3};
      const Array whole = counted(shape);
      for (const Layout& layout : every_layout(mesh, shape)) {
        DistTensor x = put(whole, mesh, layout).set_requires_grad();
        for (int dim = -3; dim < 3; ++dim) {
          const int d = dim < 0 ? dim + 3 : dim;
          for (int64_t index : {int64_t{0}, int64_t{2}, int64_t{-1}}) {
            const int64_t i = index < 0 ? index + shape[d] : index;
            const std::string what = fmt::format(
                "{} select {} of {}", x.spec()->to_string(), index, dim);
            Array want = sliced(whole, d, i, i + 1, 1);
            want.shape.erase(d);
            DistTensor y, dx;
            Array dwant = values(want.shape, 3);
            {
              NoComm none;
              y = select(x, dim, index);
              dx = gradient_of(y, x, cotangent_like(y, dwant));
            }
            expect_parts(y, want, what);
            Array thick = dwant;
            thick.shape.insert(d, 1);
            expect_parts(dx, padded(thick, shape, d, i, i + 1, 1), what);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
      // item() of one selected element works on every rank.
      DistTensor v = put(counted({5}), mesh, every_layout(mesh, {5})[0]);
      for (int64_t i = 0; i < 5; ++i)
        EXPECT_EQ(select(v, 0, i).item(), static_cast<double>(i + 1));
    });
}

TEST(Slice, PiecesAsInPyTorch) {
  on_mesh("x=3", [](const Mesh& mesh) {
    auto sizes = [](const std::vector<DistTensor>& pieces, int dim) {
      std::vector<int64_t> all;
      for (const DistTensor& p : pieces) all.push_back(p.size(dim));
      return all;
    };
    using Sizes = std::vector<int64_t>;
    DistTensor x = put(counted({2, 11}), mesh, "S1");
    EXPECT_EQ(sizes(chunk(x, 6, 1), 1), (Sizes{2, 2, 2, 2, 2, 1}));
    EXPECT_EQ(sizes(chunk(x, 4, -1), 1), (Sizes{3, 3, 3, 2}));
    EXPECT_EQ(sizes(chunk(x, 5, 1), 1), (Sizes{3, 3, 3, 2}));  // not five
    EXPECT_EQ(sizes(chunk(x, 20, 1), 1), Sizes(11, 1));
    EXPECT_EQ(sizes(chunk(x, 1, 1), 1), (Sizes{11}));
    EXPECT_EQ(sizes(split(x, 4, 1), 1), (Sizes{4, 4, 3}));
    EXPECT_EQ(sizes(split(x, 12, 1), 1), (Sizes{11}));
    EXPECT_EQ(sizes(split(x, Sizes{0, 9, 2}, -1), 1), (Sizes{0, 9, 2}));
    DistTensor none = put(counted({0, 4}), mesh, "S0");
    EXPECT_EQ(sizes(chunk(none, 3, 0), 0), (Sizes{0, 0, 0}));
    EXPECT_EQ(sizes(split(none, 0, 0), 0), (Sizes{0}));
    EXPECT_EQ(sizes(split(none, 2, 0), 0), (Sizes{0}));
  });
}

// The gradient of a tensor is the sum of its pieces' gradients, and lies where
// the tensor does. No piece is moved, however many there are.
TEST(Slice, GradientsOfAllPiecesAddUpInPlace) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{2, 13};
      const Array whole = counted(shape);
      for (const Layout& layout : every_layout(mesh, shape, false)) {
        DistTensor x = put(whole, mesh, layout).set_requires_grad();
        NoComm none;
        std::vector<DistTensor> squares;
        for (const DistTensor& p : chunk(x, 4, 1))
          squares.push_back(square(p) *
                            static_cast<double>(squares.size() + 1));
        // One of them a second time.
        squares.push_back(squares[1]);
        DistTensor y = cat(squares, 1);
        Array dy = values(y.shape(), 4), want = zeros_like(shape);
        for (int64_t r = 0; r < 2; ++r)
          for (int64_t c = 0; c < 17; ++c) {
            const int64_t at = c < 13 ? c : c - 13 + 4;
            want.at(r * 13 + at) += 2 * whole.at(r * 13 + at) *
                                    static_cast<double>(1 + at / 4) *
                                    dy.at(r * 17 + c);
          }
        DistTensor dx = gradient_of(y, x, cotangent_like(y, dy));
        EXPECT_EQ(dx.spec(), x.spec());
        expect_near(array_of(dx.local()),
                    array_of(put(want, mesh, layout).local()), 1e-12,
                    x.spec()->to_string());
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
}

// Pieces of one tensor have different layouts. An operator on two moves one.
TEST(Slice, OperandsMeetAtTheLargest) {
  on_mesh("x=3", [](const Mesh& mesh) {
    const Array whole = counted({8, 2});
    DistTensor x = put(whole, mesh, "S0");
    DistTensor a = narrow(x, 0, 0, 4), b = narrow(x, 0, 4, 4);
    EXPECT_EQ(a.layout().to_string(mesh), "S0@0|2|4|4");
    EXPECT_EQ(b.layout().to_string(mesh), "S0@0|0|1|4");
    Array want = zeros_like({4, 2});
    for (int64_t i = 0; i < 8; ++i) want.at(i) = whole.at(i) + whole.at(i + 8);
    expect_parts(a + b, want, "a + b");
    DistTensor row = narrow(x, 0, 7, 1);  // all of it at the last rank
    NoComm none;
    EXPECT_EQ((a * 2.0).spec(), a.spec());
    EXPECT_EQ((row * 2.0).spec(), row.spec());
  });
}

TEST(Slice, WrongUseIsASentence) {
  auto says = [](const char* part, std::function<void(const DistTensor&)> fn) {
    std::string m = error_of(2, [&](const Mesh& mesh) {
      fn(put(counted({4, 6}), mesh, "S0"));
    });
    EXPECT_NE(m.find(part), m.npos) << m;
  };
  using X = const DistTensor&;
  says(
      "[narrow] start is 2 and length is 3, but dimension 0 of f64[4, 6](S0) "
      "has size 4; write a start and a length within it",
      [](X x) { narrow(x, 0, 2, 3); });
  says("[narrow]", [](X x) { narrow(x, 0, 5, 0); });
  says("[narrow]", [](X x) { narrow(x, 0, 0, -1); });
  says("[narrow]", [](X x) { narrow(x, 2, 0, 1); });
  says("[select] index 4 is out of range for dimension 0",
       [](X x) { select(x, 0, 4); });
  says("[slice] step is 0", [](X x) { slice(x, 0, 0, 4, 0); });
  for (const char* name : {"slice", "slice_backward"})
    says(fmt::format("[{}] dim is 0, lo 5, hi 2 and step 1; write", name)
             .c_str(),
         [&](X x) {
           const Op& op = *find_op(name);
           Attrs attrs = op.samples()[0].attrs;
           attrs.set("lo", "5", "test");
           attrs.set("hi", "2", "test");
           apply1(op, x, attrs);
         });
  says(
      "[split] the sizes of the pieces add up to 5, which is not the size of "
      "dimension 1",
      [](X x) {
        split(x, std::vector<int64_t>{2, 3}, 1);
      });
  says("[split] cannot split into pieces of size 0",
       [](X x) { split(x, 0, 1); });
  says("[chunk] chunks is 0; write at least 1", [](X x) { chunk(x, 0, 1); });
}

// An assignment to a slice, and its gradients: to src, and to the rest of x.
TEST(SliceScatter, PutsSrcInPlaceAndSendsNothing) {
  const Array x = counted({7, 4}), other = values({7, 4}, 2),
              src = sliced(other, 0, 1, 6, 2);
  for (const char* mesh : {"x=2", "x=3"})
    for (const char* layout : {"R", "S0", "S1"})
      on_mesh(mesh, [&](const Mesh& m) {
        DistTensor to = put(x, m, layout),
                   from = slice(put(other, m, layout), 0, 1, -1, 2).detach();
        to.set_requires_grad();
        from.set_requires_grad();
        RankContext& context = RankContext::current();
        context.record = true;
        const DistTensor y = slice_scatter(to, from, 0, 1, -1, 2);
        EXPECT_TRUE(context.events.empty());
        EXPECT_EQ(y.spec()->to_string(), to.spec()->to_string());
        Array want = x, dx = x, dsrc = src;
        for (int64_t i = 0; i < 28; ++i) {
          const int64_t r = i / 4;
          const bool in = r == 1 || r == 3 || r == 5;
          if (in) want.at(i) = src.at((r - 1) / 2 * 4 + i % 4);
          dx.at(i) = in ? 0 : x.at(i);
        }
        expect_near(array_of(y.full()), want, 0, layout);
        const auto g = grad(y, {to, from}, {.cotangent = put(x, m)});
        for (int64_t i = 0; i < 12; ++i)
          dsrc.at(i) = x.at((2 * (i / 4) + 1) * 4 + i % 4);
        expect_near(array_of(g[0].full()), dx, 0, layout);
        expect_near(array_of(g[1].full()), dsrc, 0, layout);
        const DistTensor row = select(from, 0, 0).detach();
        for (const auto& [index, at] : {std::pair{-1, 6}, {0, 0}})
          expect_near(
              array_of(select(select_scatter(to, row, 0, index), 0, at).full()),
              array_of(row.full()), 0, layout);
      });
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       slice_scatter(put(counted({4, 6}), m),
                                     put(counted({3, 6}), m), 0, 0, 2);
                     }),
            "[slice_scatter] cannot put f64[3, 6](R) into a slice of f64[4, "
            "6](R); write a tensor of the same type and of shape [2, 6]");
  EXPECT_EQ(error_of(2,
                     [](const Mesh& m) {
                       slice_scatter(put(counted({4, 6}), m),
                                     put(counted({2, 6}), Mesh::parse("y=2")),
                                     0, 0, 2);
                     })
                .substr(0, 42),
            "[slice_scatter] src is on mesh y=2, but x ");
}

}  // namespace
}  // namespace dtensor
