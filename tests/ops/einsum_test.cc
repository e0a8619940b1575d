// SPDX-License-Identifier: Apache-2.0
// The order in which einsum contracts many operands, and the forms of its rule.
// contraction_test compares values and gradients with a plain loop.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/array.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;
using testing::values;

// Records the rules, bytes and price of the operators that run while it lives.
class Steps {
 public:
  int64_t total() const { return price + put_off; }
  int64_t bytes() const {
    int64_t n = 0;
    for (const CommEvent& e : record_.events()) n += e.predicted;
    return n;
  }
  std::vector<std::string> rules;
  int64_t price = 0, put_off = 0;

 private:
  CommRecord record_;
  OnOp observe_{RankContext::current(), [this](const OpRan& op) {
                  const std::string rule = op.rule->rule().to_string();
                  rules.push_back(rule.substr(0, rule.find(" |")));
                  price += op.choice.comm_ps + op.choice.work_ps;
                  put_off = op.choice.reduce_ps;
                }};
};

using Rules = std::vector<std::string>;

DistTensor counting(const Shape& shape, const Mesh& mesh,
                    const Placements& layout) {
  DistTensor x = arange(numel(shape), mesh);
  x = sub(cast(reshape(x, shape), DType::kF64), 3.0);
  return x.redistribute(layout);
}

RunOptions under(const CostTable& cost, int64_t world) {
  RunOptions o;
  o.world = world;
  o.cost = cost;
  return o;
}

// Prices by which only floating point operations cost anything.
CostTable only_flops() {
  CostTable c;
  c.axes = {AxisCost{{0, 0}}};
  c.ps_per_local_byte = 0;
  return c;
}

// A (BC) takes 0.8 % more operations than (AB) C, but A alone has to be
// gathered, and not the 64 times larger AB.
TEST(EinsumOrder, CountsBytesBesideOperations) {
  CostTable slow = only_flops();
  slow.axes = {AxisCost{{5'000'000, 1000}}};
  for (const bool bytes_count : {false, true})
    run(under(bytes_count ? slow : only_flops(), 2), [&](Runtime& rt) {
      const DistTensor a = counting({8, 8}, rt.mesh(), "S0"),
                       b = counting({8, 512}, rt.mesh(), "R"),
                       c = counting({512, 1024}, rt.mesh(), "S1");
      const Steps steps;
      const DistTensor y = einsum("ab,bc,cd->ad", {a, b, c});
      if (bytes_count) {
        EXPECT_EQ(steps.rules, (Rules{"bc,cd->bd", "ab,bd->ad"}));
        EXPECT_EQ(steps.bytes(), 8 * 8 / 2 * 8);  // half of A
      } else {
        EXPECT_EQ(steps.rules, (Rules{"ab,bc->ac", "ac,cd->ad"}));
        EXPECT_GE(steps.bytes(), 8 * 512 / 2 * 8);  // half of AB
      }
      EXPECT_EQ(values(y), values(matmul(matmul(a, b), c)));
    });
}

// The least price of all orders of contracting pairs, by running each order.
int64_t least_price(const std::vector<std::string>& terms,
                    const std::vector<DistTensor>& x, const std::string& out,
                    int64_t so_far) {
  if (terms.size() == 1) return so_far;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < terms.size(); ++i)
    for (size_t k = i + 1; k < terms.size(); ++k) {
      std::vector<std::string> rest = terms;
      std::vector<DistTensor> left = x;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(k));
      std::string needed = out, term;
      for (size_t j = 0; j < rest.size(); ++j)
        if (j != i) needed += rest[j];
      for (char c : terms[i] + terms[k])
        if (needed.find(c) != needed.npos && term.find(c) == term.npos)
          term += c;
      if (rest.size() == 1) term = out;
      if (term.size() > 8) continue;
      const Steps step;
      left[i] = einsum(terms[i] + "," + terms[k] + "->" + term, {x[i], x[k]});
      rest[i] = term;
      least = std::min(
          least,
          least_price(rest, left, out,
                      so_far + (rest.size() == 1 ? step.total() : step.price)));
    }
  return least;
}

struct Expression {
  std::vector<std::string> terms;
  std::string out;
  std::vector<DistTensor> operands;
  std::string rule() const {
    std::string t = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) t += "," + terms[i];
    return t + "->" + out;
  }
};

// Every index is in two terms or more, counting the output, so that none is
// summed before the first pair.
Expression random_expression(std::mt19937& random, size_t n, const Mesh& mesh) {
  Expression e;
  e.terms.resize(n);
  Shape sizes;
  const auto letters = static_cast<char>(n + random() % 2);
  for (char c = 'a'; c < 'a' + letters; ++c) {
    const size_t first = random() % n, second = random() % n;
    e.terms[first] += c;
    if (second != first)
      e.terms[second] += c;
    else
      e.out += c;
    if (random() % 4 == 0 && e.out.find(c) == e.out.npos) e.out += c;
    sizes.push_back(int64_t{1} << random() % 11);
  }
  for (const std::string& term : e.terms) {
    Shape shape;
    for (char c : term) shape.push_back(sizes[c - 'a']);
    std::string layout;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      const size_t choice = random() % (term.size() + 2);
      layout += axis > 0 ? "," : "";
      layout += choice == 0   ? "R"
                : choice == 1 ? "P"
                              : fmt::format("S{}", choice - 2);
    }
    e.operands.push_back(DistTensor::empty(Spec::get(
        mesh, shape, Placements(layout).resolve(mesh, shape), DType::kF32)));
  }
  return e;
}

TEST(EinsumOrder, IsTheCheapestOfAll) {
  std::mt19937 random(4);
  for (const char* text : {"x=2", "x=3,y=2"})
    for (int i = 0; i < 200; ++i) {
      const Mesh mesh = Mesh::parse(text);
      RunOptions dry = under({}, mesh.num_ranks());
      dry.dry_run = true;
      run(dry, [&](Runtime&) {
        const Expression e =
            random_expression(random, i % 8 == 0 ? 3 : 4, mesh);
        const int64_t least = least_price(e.terms, e.operands, e.out, 0);
        const Steps steps;
        einsum(e.rule(), e.operands);
        EXPECT_EQ(steps.total(), least) << e.rule() << " on " << text;
      });
    }
}

// With more than six operands, the cheapest pair is contracted first: here the
// vector is multiplied by one matrix after the other.
TEST(EinsumOrder, IsGreedyForManyOperands) {
  for (const char* layout : {"R", "S0"})
    run(2, [&](Runtime& rt) {
      std::vector<DistTensor> x;
      for (int i = 0; i < 9; ++i)
        x.push_back(counting({5, 5}, rt.mesh(), layout));
      x.push_back(counting({5}, rt.mesh(), layout));
      DistTensor expected = x.back();
      for (size_t i = 9; i-- > 0;) expected = matmul(x[i], expected);
      const Steps steps;
      const DistTensor y = einsum("ab,bc,cd,de,ef,fg,gh,hi,ij,j->a", x);
      EXPECT_EQ(steps.rules.size(), 9u);
      EXPECT_EQ(steps.rules[0], "ij,j->i");
      for (const std::string& rule : steps.rules)
        EXPECT_EQ(rule.size(), 7u) << rule;
      EXPECT_EQ(values(y), values(expected));
    });
}

TEST(EinsumOrder, SumsAnIndexOfOneOperandFirst) {
  run(2, [](Runtime& rt) {
    const DistTensor a = counting({3, 5, 2}, rt.mesh(), "S1"),
                     b = counting({2, 4}, rt.mesh(), "R"),
                     c = counting({4, 3}, rt.mesh(), "S0");
    const Steps steps;
    const DistTensor y = einsum("axb,bc,cd->ad", {a, b, c});
    ASSERT_EQ(steps.rules.size(), 3u);
    EXPECT_EQ(steps.rules[0], "axb->ab");
    EXPECT_EQ(values(y), values(matmul(matmul(sum(a, {1}), b), c)));
  });
}

// Neither parameter may be sent, and one axis cannot split b and c at once.
TEST(EinsumOrder, LeavesParametersWhereTheyAre) {
  run(2, [](Runtime& rt) {
    DistTensor v = counting({3, 4}, rt.mesh(), "S1"),
               w = counting({4, 6}, rt.mesh(), "S1");
    const DistTensor x = counting({6, 2}, rt.mesh(), "R"),
                     expected = matmul(matmul(v, w), x);
    DistTensor u = counting({6, 2}, rt.mesh(), "S1");
    for (DistTensor* x : {&u, &v, &w}) x->as_parameter();
    EXPECT_NE(error_of([&] { matmul(v, w); }), "no error");
    const Steps steps;
    const DistTensor y = einsum("ab,bc,cd->ad", {v, w, x});
    EXPECT_EQ(steps.rules, (Rules{"bc,cd->bd", "ab,bd->ad"}));
    EXPECT_EQ(values(y), values(expected));
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->ad", {v, w, u});
              }),
              "[einsum] found no order in which to contract two operands at a "
              "time; the last attempt failed: [einsum] there is no "
              "way to compute on f64[4, 6](S1) (parameter), f64[6, 2](S1) "
              "(parameter) without sending a parameter; redistribute an input "
              "first, or do not call as_parameter() on a tensor that may be "
              "sent: set_requires_grad() alone asks for a gradient");
  });
}

TEST(EinsumRule, WithoutAnArrow) {
  run(2, [](Runtime& rt) {
    const DistTensor a = counting({3, 4}, rt.mesh(), "S0"),
                     b = counting({4, 5}, rt.mesh(), "S1"),
                     c = counting({5, 2}, rt.mesh(), "R"),
                     s = counting({2, 3, 3}, rt.mesh(), "S0");
    const auto same = [](const DistTensor& x, const DistTensor& y) {
      EXPECT_EQ(x.shape(), y.shape());
      EXPECT_EQ(values(x), values(y));
    };
    same(einsum("ij, jk", {a, b}), matmul(a, b));
    same(einsum("kj,ji", {a, b}), transpose(matmul(a, b), 0, 1));
    same(einsum("ba", {a}), transpose(a, 0, 1));
    same(einsum("aB", {a}), transpose(a, 0, 1));  // as in torch
    same(einsum("ij,jk,kl", {a, b, c}), matmul(matmul(a, b), c));
    same(einsum("bii", {s}), einsum("bii->b", {s}));
    same(einsum("b...i,ij", {s, a}), transpose(matmul(s, a), 0, 1));
  });
}

TEST(EinsumRule, BatchesOfManyOperands) {
  run(2, [](Runtime& rt) {
    const DistTensor a = counting({2, 1, 3, 4}, rt.mesh(), "S0"),
                     b = counting({5, 4, 3}, rt.mesh(), "S1"),
                     c = counting({3, 2}, rt.mesh(), "R"),
                     d = counting({2, 1, 2, 3}, rt.mesh(), "P");
    const DistTensor y = einsum("...ij,...jk,kl,...lm->...im", {a, b, c, d});
    EXPECT_EQ(y.shape(), (Shape{2, 5, 3, 3}));
    EXPECT_EQ(values(y), values(matmul(matmul(matmul(a, b), c), d)));
    EXPECT_EQ(values(einsum("...ij,...jk,kl,...lm->im", {a, b, c, d})),
              values(sum(y, {0, 1})));
  });
}

TEST(EinsumRule, ScalarBesideADiagonal) {
  run(2, [](Runtime& rt) {
    const DistTensor two = full({}, 2, rt.mesh(), {}, DType::kF64),
                     m = counting({3, 3}, rt.mesh(), "S0");
    EXPECT_EQ(values(einsum(",ii->i", {two, m})),
              (std::vector<double>{-6, 2, 10}));
    EXPECT_EQ(values(einsum("ii,,->", {m, two, two})),
              (std::vector<double>{12}));
  });
}

TEST(EinsumRule, ErrorsBeforeAnythingIsSent) {
  run(2, [](Runtime& rt) {
    const Mesh first = Mesh::parse("x=1 of ranks 0");
    const DistTensor a = counting({3, 3}, rt.mesh(), "S0"),
                     b = counting({3, 3}, rt.mesh(), "S1"),
                     c = counting({3, 4}, rt.mesh(), "S0"),
                     elsewhere = b.redistribute(first, "R");
    const CommRecord record;
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->ad", {a, b, cast(c, DType::kF32)});
              }),
              "[einsum] the operands are f64 and f32; cast them to one type, "
              "such as f64");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->ad", {a, c, b});
              }),
              "[einsum] shapes [3, 3] and [3, 4] and [3, 3] do not fit "
              "together: 'c' of the rule ab,bc,cd->ad | linear 0; linear 1; "
              "linear 2 is both 4 and 3; give these dimensions the same size");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->ad", {a, b});
              }),
              "[einsum] the list of operands has length 2, but 'ab,bc,cd->ad' "
              "needs length 3; pass one operand for each term of the rule");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->adx", {a, b, c});
              }),
              "[einsum] 'ab,bc,cd->adx' has the index 'x' only in its output; "
              "give it to an operand, or leave it out");
    EXPECT_EQ(error_of([&] {
                einsum("ab,bc,cd->ad", {a, elsewhere, c});
              }),
              fmt::format("[einsum] operands are on two meshes, {} and {}; "
                          "move one to the other's mesh",
                          rt.mesh().to_string(), first.to_string()));
    std::string rule = "ab";
    for (int i = 0; i < 64; ++i) rule += ",ab";
    EXPECT_EQ(
        error_of([&] { einsum(rule + "->", std::vector<DistTensor>(65, a)); }),
        "[einsum] got 65 operands; contract at most 64 at a time");
    EXPECT_TRUE(record.events().empty());
  });
}

}  // namespace
}  // namespace dtensor
