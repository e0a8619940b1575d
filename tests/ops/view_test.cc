// SPDX-License-Identifier: Apache-2.0
// Views and reshapes: free if the new shape can express the layout; otherwise
// view() throws and reshape() moves the tensor. Compares results with those on
// one device.
#include "dtensor/ops/view.h"

#include <algorithm>
#include <optional>
#include <set>

#include "dtensor/dtensor.h"
#include "dtensor/ops/create.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/ops/parts_testing.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using namespace dtensor::testing;

constexpr const char* kMeshes[] = {"x=2", "x=3", "x=2,y=2", "x=2,y=3"};

Array seen_as(Array a, const Shape& shape) {
  a.shape = shape;
  return a;
}

// Every shape of n elements in at most three dimensions. Only [n, 1] and [1, n]
// have a dimension of size 1.
std::vector<Shape> shapes_of(int64_t n) {
  std::vector<Shape> all{{n}, {n, 1}, {1, n}};
  for (int64_t a = 2; a < n; ++a) {
    if (n % a) continue;
    all.push_back({a, n / a});
    for (int64_t b = 2; b < n / a; ++b)
      if (n / a % b == 0) all.push_back({a, b, n / a / b});
  }
  return all;
}

// True if these indices of `shape` are the product of one set for each
// dimension, as a rank's part is under any layout.
bool is_product(const std::vector<int64_t>& held, const Shape& shape) {
  std::vector<std::set<int64_t>> seen(static_cast<size_t>(shape.size()));
  for (int64_t i : held) {
    int64_t rest = i;
    for (int d = shape.size() - 1; d >= 0; rest /= shape[d--])
      seen[static_cast<size_t>(d)].insert(rest % shape[d]);
  }
  size_t n = 1;
  for (const auto& s : seen) n *= s.size();
  return n == held.size();
}

bool can_be_said(const DistTensor& x, const Shape& to) {
  const Mesh& mesh = x.mesh();
  for (int64_t r = 0; r < mesh.num_ranks(); ++r)
    if (!is_product(indices(x.spec()->region(mesh.coordinate(r)), x.shape()),
                    to))
      return false;
  return true;
}

// The layout in an error's x.redistribute("...").
std::string advice(const std::string& message) {
  const std::string before = "x.redistribute(\"";
  size_t at = message.find(before), end = message.find("\")", at);
  return at == message.npos
             ? ""
             : message.substr(at + before.size(), end - at - before.size());
}

// Every layout of small shapes, viewed as every other shape. A view sends
// nothing and copies nothing, or throws with a redistribute() that helps. A
// reshape always gives the same values and gradients.
TEST(View, EveryLayoutAsEveryShape) {
  int64_t freely = 0, refused = 0, unsaid = 0;
  for (const char* text : kMeshes)
    on_mesh(text, [&](const Mesh& mesh) {
      const bool first =
          mesh.rank(RankContext::current().coordinate(mesh)) == 0;
      for (int64_t n : {6, 8, 12, 5, 1}) {
        if (n == 12 && mesh.num_ranks() > 3) continue;  // they are many
        const std::vector<Shape> shapes = shapes_of(n);
        for (const Shape& from : shapes)
          for (const Layout& layout : every_layout(mesh, from)) {
            const Array whole = counted(from);
            DistTensor x = put(whole, mesh, layout).set_requires_grad();
            for (const Shape& to : shapes) {
              const std::string what =
                  x.spec()->to_string() + " as " + to_string(to);
              std::string message;
              try {
                NoComm none;
                DistTensor y = view(x, to);
                DistTensor back = view(y, from);
                EXPECT_EQ(y.local().storage(), x.local().storage()) << what;
                EXPECT_EQ(back.spec()->split_axes(), x.spec()->split_axes());
                // The gradient gets x's layout, and nothing is sent.
                if (x.spec()->partial_axes() == 0) {
                  DistTensor dx =
                      gradient_of(y, x, cotangent_like(y, values(to, 3)));
                  EXPECT_EQ(dx.spec(), x.spec()) << what;
                  expect_parts(dx, seen_as(values(to, 3), from), what);
                }
              } catch (const Error& e) {
                message = e.what();
              }
              const bool possible = can_be_said(x, to);
              if (message.empty()) {
                EXPECT_TRUE(possible) << what;
                if (first) ++freely;
              } else {
                if (first) ++refused;
                if (first && possible) ++unsaid;
                EXPECT_EQ(message.find("[view] " + x.spec()->to_string() +
                                       " cannot be viewed as " + to_string(to)),
                          0u)
                    << message;
                DistTensor moved =
                    x.redistribute(std::string_view(advice(message)));
                std::optional<NoComm> none(std::in_place);
                DistTensor seen = view(moved.detach(), to);
                none.reset();
                expect_parts(seen, seen_as(whole, to),
                             what + " after " + advice(message));
              }
              DistTensor y = reshape(x, to);
              expect_parts(y, seen_as(whole, to), what);
              const Array dy = values(to, 5);
              DistTensor dx = gradient_of(y, x, put(dy, mesh, "R"));
              expect_near(array_of(dx.full()), seen_as(dy, from), 0, what);
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
      }
    });
  EXPECT_GT(freely, 5000);
  EXPECT_GT(refused, 1000);
  // A layout cannot say some index sets that are products, because one axis
  // would have to cut two dimensions: the columns of [3, 4] in 1, 1 and 2, as
  // [6, 2].
  EXPECT_LT(unsaid, 200);
}

// A tensor without elements has every layout (pytorch#143372).
TEST(View, EmptyShapes) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const std::vector<Shape> shapes{{0}, {0, 3}, {3, 0}, {2, 0, 4}, {0, 0}};
      for (const Shape& from : shapes)
        for (const Layout& layout : every_layout(mesh, from))
          for (const Shape& to : shapes) {
            DistTensor x = put(counted(from), mesh, layout).set_requires_grad();
            NoComm none;
            DistTensor y = view(x, to);
            EXPECT_EQ(to_string(y.shape()), to_string(to));
            EXPECT_EQ(y.local().numel(), 0);
            DistTensor dx = gradient_of(y, x, cotangent_like(y, counted(to)));
            EXPECT_EQ(to_string(dx.shape()), to_string(from));
          }
    });
}

// Pitfall 12 (#166483): to flatten [2, 4] with the 4 split, and to view it as
// [2, 4] again, sends nothing.
TEST(View, FlattenedInnerSplitIsInterleaved) {
  on_mesh("x=2", [](const Mesh& mesh) {
    NoComm none;
    const int64_t rank = RankContext::current().coordinate(mesh)[0];
    DistTensor x = put(counted({2, 4}, 0), mesh, "S1");
    DistTensor flat = view(x, {8});
    const double lo = rank == 0 ? 0 : 2;
    const double want[] = {lo, lo + 1, lo + 4, lo + 5};
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(flat.local().at(i), want[i]);
    EXPECT_EQ(view(flat, {2, 4}).spec(), x.spec());
    EXPECT_EQ(view(flat, {2, 2, 2}).layout().to_string(mesh), "S1");
  });
}

// Pitfall 12: [12] as [3, 4], every row of which is in chunks of 2, 1 and 1.
TEST(View, InterleavedUneven) {
  on_mesh("x=3", [](const Mesh& mesh) {
    const Layout rows{
        {Dim::product({Dim(3), Dim(4, Split::at({0}, {0, 2, 3, 4}, mesh))})},
        {}};
    DistTensor x = put(counted({12}), mesh, rows);
    NoComm none;
    DistTensor y = view(x, {3, 4});
    EXPECT_EQ(y.layout().to_string(mesh), "S1@0|2|3|4");
    const int64_t columns[] = {2, 1, 1};
    EXPECT_EQ(
        to_string(y.local().shape()),
        to_string({3, columns[RankContext::current().coordinate(mesh)[0]]}));
    expect_parts(y, counted({3, 4}), "as [3, 4]");
  });
}

// Pitfall 12: a view that no tree (Dim) can express is refused. The error gives
// the sizes and what to write.
TEST(View, ImpossibleOnesAreSentences) {
  on_mesh("x=3", [](const Mesh& mesh) {
    DistTensor x = put(counted({6}), mesh, "S0");
    std::string message = error_of([&] { view(x, {2, 3}); });
    EXPECT_EQ(
        message,
        "[view] f64[6](S0) cannot be viewed as [2, 3] in its layout; write "
        "x.redistribute(\"S0/3\") before it, or reshape(), which does "
        "that");
    EXPECT_EQ(reshape(x, {2, 3}).layout().to_string(mesh), "S0");
    ExplicitOnly scope;
    message = error_of([&] { reshape(x, {2, 3}); });
    EXPECT_EQ(message.find("[reshape] would have to communicate"), 0u)
        << message;
  });
}

// pytorch#179502: the columns of [12, 8] as [16, 6] have to move, but no rank
// gathers the whole tensor.
TEST(View, SplitColumnsCutAcross) {
  on_mesh("x=2", [](const Mesh& mesh) {
    const Array whole = counted({12, 8});
    DistTensor x = put(whole, mesh, "S1");
    EXPECT_THROW(view(x, {16, 6}), Error);
    RankContext& ctx = RankContext::current();
    ctx.record = true;
    DistTensor y = reshape(x, {16, 6});
    expect_parts(y, seen_as(whole, {16, 6}), "reshaped");
    EXPECT_EQ(y.layout().to_string(mesh), "S0");
    ASSERT_EQ(ctx.events.size(), 1u);
    EXPECT_EQ(ctx.events[0].predicted, 24 * 8);  // a quarter of 96 elements
  });
}

// Pitfall 14: a dimension goes away by its global size, not by a rank's.
TEST(View, SqueezeByTheGlobalSize) {
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor x = put(counted({2, 3}), mesh, "S0");  // one row each
    EXPECT_EQ(squeeze(x, 0).shape(), x.shape());
    EXPECT_EQ(squeeze(x).shape(), x.shape());
    EXPECT_THROW(squeeze(x, 2), Error);
    DistTensor row = put(counted({1, 3}), mesh, "S1");
    NoComm none;
    EXPECT_EQ(squeeze(row, -2).layout().to_string(mesh), "S0");
    EXPECT_EQ(squeeze(row).shape(), Shape{3});
    EXPECT_EQ(unsqueeze(x, -1).layout().to_string(mesh), "S0");
    EXPECT_EQ(unsqueeze(x, 0).layout().to_string(mesh), "S1");
    // A row that the second rank alone has stays there.
    DistTensor late = put(counted({1, 3}), mesh, "S0");
    DistTensor flat = squeeze(late, 0);
    EXPECT_EQ(flat.layout().to_string(mesh), "S0/3");
    expect_parts(flat, counted({3}), "late");
  });
}

// Pitfall 23 (tt-metal #52331, #50657, #38371, #35362): after each of these
// operators, the ranks hold what the layout says.
TEST(View, LayoutsTellTheTruth) {
  for (const char* text : kMeshes)
    on_mesh(text, [](const Mesh& mesh) {
      const Shape shape{4, 1, 6};
      const Array whole = counted(shape);
      for (const Layout& layout : every_layout(mesh, shape)) {
        DistTensor x = put(whole, mesh, layout);
        const std::string what = x.spec()->to_string();
        expect_parts(squeeze(x, -2), seen_as(whole, {4, 6}), what);
        expect_parts(unsqueeze(x, -1), seen_as(whole, {4, 1, 6, 1}), what);
        expect_parts(view(x, {4, 6}), seen_as(whole, {4, 6}), what);
        Array turned = zeros_like({6, 4, 1});
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t j = 0; j < 6; ++j)
            turned.at(j * 4 + i) = whole.at(i * 6 + j);
        DistTensor y, z;
        {
          NoComm none;
          y = permute(x, {-1, 0, 1});
          z = transpose(transpose(x, 0, 2), -1, -2);
          EXPECT_EQ(permute(y, {1, 2, 0}).spec(), x.spec());
        }
        expect_parts(y, turned, what);
        expect_parts(z, seen_as(turned, {6, 4, 1}), what);
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
}

TEST(View, SizesAreChecked) {
  auto says = [](const char* part, std::function<void(const DistTensor&)> fn) {
    std::string m = error_of(2, [&](const Mesh& mesh) {
      fn(put(counted({4, 6}), mesh, "S0"));
    });
    EXPECT_NE(m.find(part), m.npos) << m;
  };
  using X = const DistTensor&;
  says(
      "[view] f64[4, 6](S0) cannot take the shape [5, 5]; write sizes of at "
      "least 0 whose product is 24",
      [](X x) {
        view(x, {5, 5});
      });
  says(
      "[reshape] f64[4, 6](S0) cannot take the shape [-1, 5]; write sizes of "
      "at least 0 whose product is 24",
      [](X x) {
        reshape(x, {-1, 5});
      });
  says("[view] [-1, -1] has more than one -1; write -1 once", [](X x) {
    view(x, {-1, -1});
  });
  says("[view]", [](X x) { view(x, {-2, -12}); });
  says("[permute]", [](X x) { permute(x, {0, 0}); });
  on_mesh("x=2", [](const Mesh& mesh) {
    DistTensor x = put(counted({4, 6}), mesh, "S0");
    EXPECT_EQ(to_string(view(x, {-1, 3}).shape()), "[8, 3]");
    EXPECT_EQ(to_string(view(x, {2, 2, -1}).shape()), "[2, 2, 6]");
  });
}

// The gradient of a parameter that was expanded over the batch gathered the
// cotangent of the whole batch before it summed.

// The bytes that this rank received since it recorded.
int64_t counted(const RankContext& ctx) {
  int64_t bytes = 0;
  for (const CommEvent& e : ctx.events) bytes += e.counted;
  return bytes;
}

// The bytes of an all-reduce of an f64 tensor of `shape`, or of the part of one
// that remains if the gradient stays split.
int64_t reduction(RankContext& ctx, const Mesh& mesh, const Shape& shape,
                  const char* from, const char* to) {
  const auto spec = [&](const char* text) {
    return Spec::get(mesh, shape, parse_layout(text, mesh, shape), DType::kF64);
  };
  return ctx.planner.plan(spec(from), spec(to)).bytes;
}

TEST(GradientOfExpand, SumsBeforeItSends) {
  const struct {
    const char *mesh, *parameter, *batch, *partial;
  } cases[] = {{"dp=4", "R", "S0", "P"},
               {"dp=2,tp=2", "R,R", "S0,R", "P,R"},
               {"dp=2,tp=2", "R,S0", "S0,S1", "P,S0"},
               {"dp=2,tp=2", "R,R", "S0,S0", "P,P"}};
  for (const auto& c : cases) {
    const Mesh mesh = Mesh::parse(c.mesh);
    run(4, [&](Runtime& rt) {
      RankContext& ctx = rt.context();
      const DistTensor x = randn({64, 8}, mesh, c.batch, DType::kF64);
      const DistTensor w = randn({8}, mesh, c.parameter, DType::kF64, {1, 0})
                               .set_requires_grad();
      const DistTensor y = expand(w, {64, 8}) * x;
      ctx.record = true;
      const DistTensor g = grad({y}, {x}, {w})[0];
      EXPECT_EQ(counted(ctx), reduction(ctx, mesh, {8}, c.partial, c.parameter))
          << c.parameter << " " << c.batch;
      ctx.record = false;
      // d/dw sum(w x x) = sum of x x.
      const Tensor got = g.full(), want = sum(x * x, {0}).full();
      for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(got.at(i), want.at(i), 1e-12);
    });
  }
}

// view() never communicates. If the layout does not allow a view, it throws on
// every rank and names the redistribute() that helps.

TEST(Views, SendNothing) {
  struct {
    const char* mesh;
    int ranks;
    std::vector<const char*> layouts;
  } cases[] = {
      {"a=2", 2, {"S0", "S1", "S2", "P", "P(mean)"}},
      {"a=3", 3, {"S0", "S1", "S2"}},
      {"a=5", 5, {"S0", "S1", "S2"}},
      {"a=2,b=3", 6, {"S0,S0", "S0,S2", "S2,S0", "S1,S2", "P,S0", "S0,S1"}}};
  const std::vector<Shape> from = {{24, 1, 36}, {6, 4, 5}, {1, 8, 9}};
  const std::vector<Shape> to[] = {{{12, 24, 3}, {12, 2, 36}, {24, 36}, {864}},
                                   {{24, 5}, {12, 10}, {120}, {3, 8, 5}},
                                   {{8, 9}, {4, 18}, {72}, {2, 36}}};
  int seen = 0, refused = 0;
  for (const auto& c : cases)
    run(c.ranks, [&](Runtime& rt) {
      const Mesh mesh = Mesh::parse(c.mesh);
      rt.context().record = true;
      for (const char* layout : c.layouts)
        for (size_t f = 0; f < from.size(); ++f)
          for (const Shape& shape : to[f]) {
            const DistTensor x = DistTensor::empty(
                Spec::get(mesh, from[f], parse_layout(layout, mesh, from[f]),
                          DType::kF64));
            const std::string e = testing::error_of([&] { view(x, shape); });
            EXPECT_TRUE(rt.context().events.empty())
                << x.spec()->to_string() << " as " << to_string(shape) << ": "
                << e;
            rt.context().events.clear();
            EXPECT_TRUE(e == "no error" ||
                        e.find("x.redistribute(\"") != e.npos)
                << e;
            if (rt.rank() == 0) ++(e == "no error" ? seen : refused);
          }
    });
  EXPECT_GT(seen, 20);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace dtensor
