// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "dtensor/comm_event.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "dtensor/scopes.h"
#include "tests/ops/structured_testing.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

struct Sizes {
  int64_t tokens, hidden, k, experts, ffn;
};

// The choices are uneven: expert 0 gets the most, the last one none. Two ids
// name no expert.
std::vector<double> choices(const Sizes& n) {
  std::vector<double> ids;
  for (int64_t t = 0; t < n.tokens; ++t)
    for (int64_t j = 0; j < n.k; ++j)
      ids.push_back(static_cast<double>((t * t / 3 + j) %
                                        std::max<int64_t>(n.experts - 1, 1)));
  if (ids.size() > 4) ids[3] = -7, ids[4] = static_cast<double>(n.experts);
  return ids;
}

Problem problem(const Sizes& n) {
  Problem p;
  p.inputs = {values({n.tokens, n.hidden}, 1),
              integers({n.tokens, n.k}, choices(n)),
              values({n.tokens, n.k}, 2),
              values({n.experts, n.ffn, n.hidden}, 3),
              values({n.experts, n.ffn, n.hidden}, 4),
              values({n.experts, n.hidden, n.ffn}, 5)};
  p.function = [](const std::vector<DistTensor>& x) {
    return experts(x[0], x[1], x[2], x[3], x[4], x[5]);
  };
  p.reference = [n](const std::vector<Array>& in) {
    Array y = zeros_like({n.tokens, n.hidden});
    for (int64_t t = 0; t < n.tokens; ++t)
      for (int64_t j = 0; j < n.k; ++j) {
        const auto e = static_cast<int64_t>(in[1].at(t * n.k + j));
        if (e < 0 || e >= n.experts) continue;
        for (int64_t f = 0; f < n.ffn; ++f) {
          double gate = 0, up = 0;
          for (int64_t h = 0; h < n.hidden; ++h) {
            const int64_t at = (e * n.ffn + f) * n.hidden + h;
            gate += in[3].at(at) * in[0].at(t * n.hidden + h);
            up += in[4].at(at) * in[0].at(t * n.hidden + h);
          }
          const double inner = gate / (1 + std::exp(-gate)) * up;
          for (int64_t h = 0; h < n.hidden; ++h)
            y.at(t * n.hidden + h) += in[2].at(t * n.k + j) * inner *
                                      in[5].at((e * n.hidden + h) * n.ffn + f);
        }
      }
    return y;
  };
  return p;
}

TEST(Experts, AgainstTheNaiveOne) {
  check_problem(
      problem({7, 3, 2, 5, 4}),
      {{"ep=2", {"S0", "S0", "S0", "S0", "S0", "S0"}},
       {"ep=3", {"S0", "S0", "S0", "S0", "S0", "S0"}},
       {"ep=2", {"", "", "", "S0", "S0", "S0"}},
       {"tp=3", {"", "", "", "S1", "S1", "S2"}},
       {"ep=2,tp=3", {"S0,R", "S0,R", "S0,R", "S0,S1", "S0,S1", "S0,S2"}},
       {"dp=2,ep=3", {"S0,S0", "S0,S0", "S0,S0", "R,S0", "R,S0", "R,S0"}},
       {"dp=2,ep=2", {"S0,R", "R,R", "R,P", "R,S0", "R,S0", "R,S0"}},
       // Linear in either, but the rule does not say so: partials are summed.
       {"tp=2", {"", "", "P", "", "", ""}},
       {"tp=2", {"", "", "", "", "", "P"}}});
}

// More ranks than experts, and than tokens.
TEST(Experts, RanksWithoutAny) {
  check_problem(problem({3, 2, 1, 2, 3}),
                {{"ep=5", {"S0", "S0", "S0", "S0", "S0", "S0"}}});
  check_problem(problem({4, 2, 2, 1, 2}),
                {{"ep=3", {"S0", "S0", "S0", "S0", "S0", "S0"}}});
  check_problem(problem({5, 3, 2, 0, 4}),
                {{"ep=2", {"S0", "S0", "S0", "S0", "S0", "S0"}}});
}

// If every rank has all experts, no row travels: reading fewer experts would
// save less than sending the rows there and back costs. (That changes if
// experts are much larger than all rows, but then nobody has all experts on
// every rank.)
TEST(Experts, DataParallelSendsNothing) {
  on_mesh("dp=4", [](const Mesh& mesh) {
    const Problem p = problem({32, 16, 2, 8, 42});
    std::vector<DistTensor> x;
    for (size_t i = 0; i < p.inputs.size(); ++i)
      x.push_back(put(p.inputs[i], mesh, i < 3 ? "S0" : "R"));
    RankContext& context = RankContext::current();
    context.record = true;
    const DistTensor y = p.function(x);
    EXPECT_TRUE(context.events.empty());
    EXPECT_EQ(y.layout(), x[0].layout());
  });
}

TEST(Experts, Types) {
  check_types(problem({7, 3, 2, 5, 4}), {"S0", "S0", "S0", "S0", "S0", "S0"});
}

// The numbers of rows that a rank of ep receives, according to the ids: `there`
// for its experts, from other ranks; `back` for its own tokens, from experts
// elsewhere.
struct Rows {
  int64_t there = 0, back = 0;
};
Rows rows_of(const Sizes& n, int64_t ranks, int64_t rank) {
  const auto owner = [&](int64_t i, int64_t of) {
    int64_t r = 0;
    while ((r + 1) * of / ranks <= i) ++r;
    return r;
  };
  const std::vector<double> ids = choices(n);
  Rows rows;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto e = static_cast<int64_t>(ids[i]);
    if (e < 0 || e >= n.experts) continue;
    const int64_t home = owner(static_cast<int64_t>(i) / n.k, n.tokens),
                  to = owner(e, n.experts);
    rows.there += to == rank && home != rank;
    rows.back += home == rank && to != rank;
  }
  return rows;
}

// Four exchanges, of the rows that the ids say and no others.
TEST(Experts, SendsWhatTheFormulaSays) {
  const Sizes n{11, 6, 2, 5, 4};
  bool differ = false;
  for (int64_t ranks : {2, 3, 4}) {
    int64_t most_there = 0, most_back = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      most_there = std::max(most_there, rows_of(n, ranks, r).there);
      most_back = std::max(most_back, rows_of(n, ranks, r).back);
      differ |= rows_of(n, ranks, r).there != rows_of(n, ranks, r).back;
    }
    on_mesh("ep=" + std::to_string(ranks), [&](const Mesh& mesh) {
      const Problem p = problem(n);
      std::vector<DistTensor> x, wanted;
      for (const Array& a : p.inputs) {
        x.push_back(put(a, mesh, "S0", DType::kF32));
        if (a.dtype == DType::kF64)
          wanted.push_back(x.back().set_requires_grad());
      }
      RankContext& context = RankContext::current();
      context.record = true;
      const DistTensor y = p.function(x);
      GradOptions options;
      options.cotangent = put(values(y.shape(), 9), mesh, "S0", DType::kF32);
      grad(y, wanted, options);
      ASSERT_EQ(context.events.size(), 4u);
      const Rows mine = rows_of(n, ranks, context.world_rank);
      for (size_t i = 0; i < 4; ++i) {
        const CommEvent& e = context.events[i];
        EXPECT_TRUE(data_decide_bytes(e.op)) << e.op;
        EXPECT_EQ(e.op, i < 2 ? "experts" : "experts_backward");
        const bool there = i % 2 == 0;
        EXPECT_EQ(e.counted, (there ? mine.there : mine.back) * n.hidden * 4);
        EXPECT_EQ(e.predicted, (there ? most_there : most_back) * n.hidden * 4);
      }
    });
  }
  EXPECT_TRUE(differ);
  EXPECT_FALSE(data_decide_bytes("attention"));
}

// Without data, every rank's choices are spread evenly over the experts.
TEST(Experts, ADryRunSpreadsThemEvenly) {
  const Sizes n{12, 5, 2, 4, 3};
  RunOptions dry;
  dry.world = 2;
  dry.dry_run = true;
  run(dry, [&](Runtime&) {
    const Mesh mesh = Mesh::parse("ep=2");
    const Problem p = problem(n);
    std::vector<DistTensor> x;
    for (const Array& a : p.inputs) x.push_back(put(a, mesh, "S0"));
    RankContext& context = RankContext::current();
    context.record = true;
    p.function(x);
    ASSERT_EQ(context.events.size(), 2u);
    // 12 choices of a rank, half of them of the other's experts.
    for (const CommEvent& e : context.events)
      EXPECT_EQ(e.predicted, 6 * n.hidden * 8);
  });
}

// Equal calls share their decision but not their routing: two calls are made
// before the gradient of either is taken.
TEST(Experts, ACallKeepsItsOwn) {
  const Sizes n{7, 3, 2, 5, 4};
  on_mesh("ep=2", [&](const Mesh& mesh) {
    Problem p = problem(n);
    std::vector<DistTensor> x;
    for (const Array& a : p.inputs) x.push_back(put(a, mesh, "S0"));
    x[0].set_requires_grad();
    std::reverse(p.inputs[1].v.begin(), p.inputs[1].v.end());
    const DistTensor other = put(p.inputs[1], mesh, "S0");
    const auto gradient = [&](const DistTensor& y) {
      GradOptions options;
      options.cotangent = put(values(y.shape(), 9), mesh, "S0");
      return array_of(grad(y, {x[0]}, options)[0].full());
    };
    const auto call = [&](const DistTensor& ids) {
      return experts(x[0], ids, x[2], x[3], x[4], x[5]);
    };
    const Array want = gradient(call(x[1]));
    const DistTensor first = call(x[1]);
    const DistTensor second = call(other);
    EXPECT_EQ(gradient(first).v, want.v);
    EXPECT_NE(gradient(second).v, want.v);
  });
}

// The decision on a call stays cached, but nothing that the call has computed.
TEST(Experts, WhatACallKeptIsFreedWithIt) {
  const Sizes n{7, 3, 2, 5, 4};
  on_mesh("ep=2", [&](const Mesh& mesh) {
    std::vector<DistTensor> x;
    for (const Array& a : problem(n).inputs) x.push_back(put(a, mesh, "S0"));
    x[0].set_requires_grad();
    const auto bytes = [] {
      return RankContext::current().allocator->stats().current_bytes;
    };
    const int64_t before = bytes();
    DistTensor y = experts(x[0], x[1], x[2], x[3], x[4], x[5]);
    EXPECT_GT(bytes(), before);
    y = DistTensor();
    EXPECT_EQ(bytes(), before);
  });
}

TEST(Experts, BadInput) {
  const auto call = [](const Shape& x, const Shape& ids, DType type) {
    return error_of(2, [&](const Mesh& m) {
      experts(full(x, 1, m), full(ids, 0, m, {}, type), full(ids, 1, m),
              full({3, 4, 2}, 1, m), full({3, 4, 2}, 1, m),
              full({3, 2, 4}, 1, m));
    });
  };
  EXPECT_EQ(call({5, 2}, {5, 1}, DType::kI32),
            "[experts] the experts' ids are i32, but must be i64; write "
            "cast(ids, DType::kI64)");
  EXPECT_EQ(call({5, 2}, {5}, DType::kI64),
            "[experts] x has shape [5, 2], ids [5] and gate [3, 4, 2]; write "
            "[tokens, hidden], [tokens, k] and [experts, ffn, hidden]");
  EXPECT_NE(call({5, 3}, {5, 1}, DType::kI64).find("do not fit"),
            std::string::npos);
}

// An exchange inside an operator is communication like any other.
TEST(Experts, ScopesRefuseTheExchange) {
  EXPECT_NE(error_of(2,
                     [](const Mesh& m) {
                       const Mesh mesh = Mesh::parse("ep=2");
                       const Problem p = problem({7, 3, 2, 5, 4});
                       std::vector<DistTensor> x;
                       for (const Array& a : p.inputs)
                         x.push_back(put(a, mesh, "S0"));
                       const NoComm none;
                       p.function(x);
                       (void)m;
                     })
                .find("budget"),
            std::string::npos);
}

// All ranks throw, even if only some would send: with dp=0 all tokens stay on
// their rank, with dp=1 none do.
TEST(Experts, ScopesRefuseOnAllRanksAlike) {
  Problem p = problem({8, 3, 1, 2, 4});
  p.inputs[1].v = {0, 0, 1, 1, 1, 1, 0, 0};
  std::array<std::string, 4> errors;
  run(4, [&](Runtime& rt) {
    const Mesh mesh = Mesh::parse("dp=2,ep=2");
    std::vector<DistTensor> x;
    for (size_t i = 0; i < p.inputs.size(); ++i)
      x.push_back(put(p.inputs[i], mesh, i < 3 ? "S0,S0" : "R,S0"));
    const NoComm none;
    errors[static_cast<size_t>(rt.rank())] = error_of([&] { p.function(x); });
  });
  EXPECT_NE(errors[0].find("budget"), std::string::npos) << errors[0];
  for (const std::string& e : errors) EXPECT_EQ(e, errors[0]);
}

// The gradient of experts() relied on where the forward pass had sent the rows,
// even if several ranks hold a token. But the forward pass computes such a
// token on each of these ranks, and the gradient on one.

// The values of all gradients with this layout of the tokens and whole experts.
std::vector<std::vector<double>> gradients(const Mesh& mesh,
                                           const std::string& tokens) {
  const auto random = [&](const Shape& shape, uint64_t n,
                          const std::string& layout) {
    return randn(shape, mesh, parse_layout(layout, mesh, shape), DType::kF64,
                 {5, n})
        .set_requires_grad();
  };
  const int64_t numbers[] = {0, 1, 3, 2, 2, 0, 1, 0, 3, 1};
  const DistTensor ids =
      DistTensor::from_global(Tensor::from({5, 2}, numbers), mesh, "R");
  const std::vector<DistTensor> in{
      random({5, 3}, 0, tokens), random({5, 2}, 1, "R"),
      random({4, 6, 3}, 2, "R"), random({4, 6, 3}, 3, "R"),
      random({4, 3, 6}, 4, "R")};
  GradOptions options;
  options.cotangent = randn({5, 3}, mesh, {}, DType::kF64, {5, 9});
  const DistTensor y = experts(in[0], ids, in[1], in[2], in[3], in[4]);
  std::vector<std::vector<double>> all;
  for (const DistTensor& g : grad(y, in, options)) {
    const Tensor whole = g.full();
    all.push_back(whole.reshape({whole.numel()}).to_doubles());
  }
  return all;
}

TEST(ExpertsOfSharedTokens, GradientsAreThoseOfWholeTokens) {
  run(3, [](Runtime&) {
    const Mesh mesh = Mesh::parse("a=3");
    const auto want = gradients(mesh, "R");
    // One token is split and four are on all ranks; the reverse; all are split.
    for (const char* tokens : {"S0(a=1|4:a)", "S0(a=4|1:a)", "S0"}) {
      const auto got = gradients(mesh, tokens);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        for (size_t k = 0; k < got[i].size(); ++k)
          EXPECT_NEAR(got[i][k], want[i][k], 1e-12)
              << tokens << ", gradient " << i << ", element " << k;
    }
  });
}

}  // namespace
}  // namespace dtensor::testing
