// SPDX-License-Identifier: Apache-2.0
// What every rank holds after a partial-fill, combined index by index as the
// layout says, is the value that was there before.
#include "dtensor/partial_fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

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

// One index of a tensor, by mesh rank: combined over the partials, the
// innermost (the last) first. `first` is any rank of the group.
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

// The values that ranks hold of index i under `to`, when those under `from` are
// `before`.
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
    // Ranks that differ in a partial have parts of their own.
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

// A segment that is whole is held by several ranks: one of them gives it.
TEST(PartialFillTest, OfConcatenations) {
  check("S0(3|a=4:a),R,R", "P,R,R");
  check("R,S0(3|a=4:a),R", "P(prod),P,R");
  check("S0(3|a=4:a),R,R", "P(prod),P(max),P");
  check("[(3{a0}|4{a1})]", "[{}] P{a0} P{a1}");
  check("[(3{a1}|4{a1,a0})] P{a2}", "[{}] P{a1:prod} P{a0:max} P{a2}");
}

}  // namespace
}  // namespace dtensor
