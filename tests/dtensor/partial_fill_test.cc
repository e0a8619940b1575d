// SPDX-License-Identifier: Apache-2.0
// The parts of all ranks after a partial-fill, combined index by index as the
// layout says, give the value that was there before.
#include "dtensor/partial_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/runtime.h"
#include "tests/placement/indices.h"

namespace dtensor {
namespace {

double combine(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

// Combines the values that ranks hold of one index (`held`, by mesh rank) over
// the partials from `depth` on, the innermost (the last) first. `at` is the
// coordinate of any rank of the group.
double combined(const Mesh& mesh, const std::vector<Partial>& partials,
                const std::map<int64_t, double>& held, Coord at,
                size_t depth = 0) {
  if (depth == partials.size()) return held.at(mesh.rank(at));
  const int axis = partials[depth].axis;
  double all = 0;
  for (int32_t c = 0; c < mesh.axis_size(axis); ++c) {
    at[axis] = c;
    const double term = combined(mesh, partials, held, at, depth + 1);
    all = c == 0 ? term : combine(partials[depth].op, all, term);
  }
  return all;
}

// The values of index i that ranks hold after the step, if they held `before`.
std::map<int64_t, double> filled(const Step& step, const Shape& shape,
                                 int64_t i,
                                 const std::map<int64_t, double>& before) {
  const Mesh& mesh = step.from->mesh();
  std::map<int64_t, double> after;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const Coord at = mesh.coordinate(r);
    const auto in = [&](const Region& region) {
      const std::vector<int64_t> list = testing::indices(region, shape);
      return std::count(list.begin(), list.end(), i) > 0;
    };
    if (!in(step.to->region(at))) continue;
    const Fill f = fill_of(step, at);
    for (size_t k = 0; k < f.identities.size(); ++k)
      if (k == 0 || in(f.identities[k].where))
        after[r] = identity_value(f.identities[k].op);
    if (f.keeps && in(f.own)) after[r] = before.at(r);
  }
  return after;
}

void check(const std::string& from_text, const std::string& to_text) {
  const Mesh mesh = Mesh::parse("2x3x2");
  const Shape shape{7};
  const auto spec = [&](const std::string& text) {
    return Spec::get(mesh, shape, parse_layout(text, mesh, shape), DType::kF64);
  };
  Step step{};
  step.kind = StepKind::kFill;
  step.from = spec(from_text);
  step.to = spec(to_text);
  const AxisMask parts = step.from->partial_axes();
  for (int64_t i = 0; i < shape[0]; ++i) {
    // Ranks that differ on a partial axis hold different values.
    std::map<int64_t, double> before;
    int64_t holder = -1;
    for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
      const Coord at = mesh.coordinate(r);
      const auto list = testing::indices(step.from->region(at), shape);
      if (std::count(list.begin(), list.end(), i) == 0) continue;
      double x = static_cast<double>(i) - 3.5;
      for (int a = 0; a < mesh.num_axes(); ++a)
        if (parts >> a & 1) x = x * 3 + static_cast<double>(at[a]) + 1;
      before[r] = x;
      if (holder < 0) holder = r;
    }
    ASSERT_GE(holder, 0);
    const double expected = combined(mesh, step.from->layout().partials, before,
                                     mesh.coordinate(holder));
    const auto after = filled(step, shape, i, before);
    for (const auto& [r, x] : after)
      EXPECT_DOUBLE_EQ(
          combined(mesh, step.to->layout().partials, after, mesh.coordinate(r)),
          expected)
          << from_text << " -> " << to_text << " index " << i << " rank " << r;
  }
}

TEST(PartialFillTest, OfAWholeValue) {
  for (const char* to :
       {"P,R,R", "P(prod),P,R", "P(max),R,P", "P,P(max),P(min)",
        "[{}] P{a2:prod} P{a0} P{a1:min}", "[{}] P{a1} P{a2:prod} P{a0:max}"})
    check("R,R,R", to);
}

TEST(PartialFillTest, OfSplitValues) {
  check("S0,R,R", "P,R,R");
  check("S0,S0,R", "P(prod),P,R");
  check("S0,S0,S0", "P(max),P(prod),P");
  check("R,S0,S0", "[{}] P{a2:prod} P{a1} P{a0:min}");
}

TEST(PartialFillTest, InsideOrOutsideOfPartials) {
  check("[{}] P{a1:max}", "[{}] P{a0:prod} P{a1:max}");
  check("[{}] P{a1}", "[{}] P{a0:prod} P{a1}");
  check("[{}] P{a1}", "[{}] P{a1} P{a0:prod} P{a2:min}");
  check("[{a0}] P{a1}", "[{}] P{a0:prod} P{a1}");
  check("[{a0,a2}] P{a1}", "[{}] P{a0:max} P{a1} P{a2:prod}");
}

// Several ranks hold a segment that is not split; only one of them keeps its
// values.
TEST(PartialFillTest, OfConcatenations) {
  check("S0(3|a=4:a),R,R", "P,R,R");
  check("R,S0(3|a=4:a),R", "P(prod),P,R");
  check("S0(3|a=4:a),R,R", "P(prod),P(max),P");
  check("[(3{a0}|4{a1})]", "[{}] P{a0} P{a1}");
  check("[(3{a1}|4{a1,a0})] P{a2}", "[{}] P{a1:prod} P{a0:max} P{a2}");
}

// Guards a fix. If a value becomes a sum of maxima, the ranks of the second
// term have to hold the identity of the sum, whatever that of the maximum is.
// They held -inf, and the whole became -inf.

TEST(MixedPartialsFill, KeepsTheValue) {
  const Mesh mesh = Mesh::parse("a=2,b=2");
  run(4, [&](Runtime&) {
    for (const char* layout : {"P,P(max)", "P(max),P", "P,P(min)"}) {
      const DistTensor x = DistTensor::from_global(
          Tensor::full({3}, DType::kF64, -2.5), mesh, layout);
      EXPECT_EQ(x.full().at(2), -2.5) << layout;
    }
  });
}

// Guards a fix. A value becomes partial on several axes, with different
// reductions. A rank that holds another term must hold the identity of the
// innermost reduction in which it is not the first rank. Ranks held the
// identity of the outermost one: -3 became -6 as P(prod),P and inf as
// P(max),P(prod), and the i64 5 became -2 as P(min),P. Also, if several ranks
// hold a whole segment of a concatenation, one of them keeps it.

// -3, -2, -1, 5, 1, 2, 3, -3 and so on: no zeros, and both signs.
Tensor numbers(const Shape& shape, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  visit(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>)
      for (int64_t i = 0; i < t.numel(); ++i)
        t.mutable_ptr<T>()[i] = static_cast<T>(i % 7 == 3 ? 5 : i % 7 - 3);
  });
  return t;
}

void expect_equal(const Tensor& got, const Tensor& expected,
                  const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const Tensor full = got.to_contiguous();
  visit(got.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>) {
      for (int64_t i = 0; i < full.numel(); ++i)
        EXPECT_EQ(full.ptr<T>()[i], expected.ptr<T>()[i])
            << what << " at " << i;
    }
  });
}

// All layouts with one of `kinds` on each axis, and with partials in both
// orders.
std::vector<Layout> layouts(const Mesh& mesh, const Shape& shape,
                            const std::vector<const char*>& kinds) {
  std::vector<Layout> all;
  for (const char* a : kinds)
    for (const char* b : kinds) {
      Layout l = parse_layout(std::string(a) + "," + b, mesh, shape);
      all.push_back(l);
      if (l.partials.size() < 2) continue;
      std::swap(l.partials[0], l.partials[1]);
      all.push_back(l.canonical(mesh));
    }
  return all;
}

TEST(MixedPartialsIdentity, TheTableOfTheReport) {
  run(4, [](Runtime&) {
    const Mesh mesh = Mesh::parse("a=2,b=2");
    for (const char* layout : {"P(prod),P", "P(max),P(prod)", "P(max),P",
                               "P(min),P", "P(prod),P(min)"})
      for (DType t : {DType::kF64, DType::kI64})
        for (double x : {-3., 5.}) {
          const DistTensor d =
              DistTensor::from_global(Tensor::full({3}, t, x), mesh, layout);
          EXPECT_EQ(d.full().at(2), x) << layout << " " << name(t);
        }
  });
}

TEST(MixedPartialsIdentity, EveryPairOnTwoAxes) {
  run(6, [&](Runtime&) {
    const Mesh mesh = Mesh::parse("a=2,b=3");
    const Shape shape{5, 3};
    std::vector<Layout> all = layouts(
        mesh, shape, {"R", "S0", "S1", "P", "P(max)", "P(prod)", "P(min)"});
    for (const char* tree : {"S0(2|a=3:a),R", "S0(2|a=3:a),P(max)",
                             "S0(2|a=3:a),S1", "R,S0(1|a=4:a)"})
      all.push_back(parse_layout(tree, mesh, shape));
    for (DType t : {DType::kF64, DType::kI64}) {
      const Tensor value = numbers(shape, t);
      for (const Layout& from : all) {
        const DistTensor x =
            DistTensor::from_global(value, mesh, Placements(from));
        for (const Layout& to : all) {
          const DistTensor y = x.redistribute(Spec::get(mesh, shape, to, t));
          expect_equal(y.full(), value,
                       from.to_string(mesh) + " -> " + to.to_string(mesh));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(MixedPartialsIdentity, ThreeAxesAndMeans) {
  run(8, [](Runtime&) {
    const Mesh mesh = Mesh::parse("2x2x2");
    const Tensor value = numbers({4, 2}, DType::kF64);
    for (const char* from : {"R,R,R", "S0,S1,R", "R,P(max),R", "S0,S0,P"})
      for (const char* to :
           {"P(prod),P,P(max)", "P(max),P(prod),P", "P,P(min),P(prod)",
            "P(prod),P(prod),P", "R,P(mean),P", "P,P(mean),R", "P(avg),P,R",
            "P,P(avg),P(max)", "P(mean),R,P(prod)"}) {
        DistTensor y;
        try {
          y = DistTensor::from_global(value, mesh, from).redistribute(to);
        } catch (const Error& e) {
          // Only layouts with a mean or an average may be refused.
          const std::string what = e.what();
          EXPECT_TRUE(what.find("mean") != std::string::npos ||
                      what.find("average") != std::string::npos)
              << what;
          continue;
        }
        expect_equal(y.full(), value, std::string(from) + " -> " + to);
      }
  });
}

// Views and concatenations pass a mixed partial on.
TEST(MixedPartialsIdentity, AfterReshapeAndCat) {
  run(4, [](Runtime&) {
    const Mesh mesh = Mesh::parse("2x2");
    const Shape shape{2, 3};
    const Tensor value = numbers(shape, DType::kI64);
    for (const char* text :
         {"[{},{}] P{a1:min} P{a0}", "[{},{}] P{a0} P{a1:max}",
          "[{},{}] P{a0:prod} P{a1}"}) {
      const DistTensor x = DistTensor::from_global(value, mesh, text);
      expect_equal(reshape(x, {3, 2}).full(), value.reshape({3, 2}), text);
      const DistTensor y =
          DistTensor::from_global(value, mesh, "[{},{}] P{a0} P{a1:max}");
      const DistTensor both = cat({x, y}, 0);
      expect_equal(both.full().slice(0, 0, 2), value, text);
      expect_equal(both.full().slice(0, 2, 4), value, text);
    }
  });
}

}  // namespace
}  // namespace dtensor
