// SPDX-License-Identifier: Apache-2.0
// choose(): which assignment an operator takes.
#include "dtensor/placement/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "dtensor/placement/axis_choices.h"
#include "dtensor/placement/candidates.h"
#include "dtensor/placement/error.h"
#include "tests/placement/enumerate.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

constexpr const char* kMatmul = "mk,kn->mn | linear 0; linear 1";
constexpr const char* kAdd = "...,...->... | linear 0,1";
constexpr const char* kMul = "...,...->... | linear 0; linear 1";

// Parses "8192x1024:S0,R". A '!' at the end makes it a parameter that stays, a
// '*' one that is gathered on use.
OpInput input(const Mesh& mesh, std::string_view text) {
  Keep keep = text.back() == '!'   ? Keep::kStay
              : text.back() == '*' ? Keep::kGatherOnUse
                                   : Keep::kMove;
  if (keep != Keep::kMove) text.remove_suffix(1);
  size_t colon = text.find(':');
  Shape shape = parse_shape(text.substr(0, colon), "test");
  Layout l = parse_layout(text.substr(colon + 1), mesh, shape);
  return {Spec::get(mesh, shape, l, DType::kF32), keep};
}

struct Case {
  Mesh mesh;
  std::vector<OpInput> in;
  BoundRule rule;
  OpWork work;
  std::vector<DType> dtypes;
  Planner planner;

  Case(const char* rule_text, const char* mesh_text,
       const std::vector<std::string>& inputs, CostTable cost = {})
      : mesh(Mesh::parse(mesh_text)),
        in(read(mesh, inputs)),
        rule(Rule(rule_text), shapes(in), "test"),
        work{2},
        dtypes(rule.rule().outputs().size(), DType::kF32),
        planner(std::move(cost)) {}

  static std::vector<OpInput> read(const Mesh& mesh,
                                   const std::vector<std::string>& texts) {
    std::vector<OpInput> all;
    for (const std::string& t : texts) all.push_back(input(mesh, t));
    return all;
  }
  static std::vector<Shape> shapes(const std::vector<OpInput>& in) {
    std::vector<Shape> all;
    for (const OpInput& i : in) all.push_back(i.spec->shape());
    return all;
  }
  Choice choose(bool forward_only = false) {
    return dtensor::choose(rule, in, dtypes, work, planner, "test",
                           forward_only);
  }
  std::vector<Choice> all() {
    return all_choices(rule, in, dtypes, work, planner);
  }
  std::string text(const Choice& c) {
    return rule.to_string(c.assignment, mesh);
  }
};

TEST(Choose, ColumnParallelMovesNothing) {
  Case c(kMatmul, "dp=2,tp=4", {"8192x1024:S0,R", "1024x4096:R,S1!"});
  Choice best = c.choose();
  EXPECT_EQ(c.text(best), "m: dp; n: tp");
  EXPECT_EQ(best.comm_ps, 0);
  EXPECT_EQ(best.reduce_ps, 0);
  EXPECT_EQ(best.steps, 0);
  EXPECT_EQ(best.in[0], c.in[0].spec);
  EXPECT_EQ(best.in[1], c.in[1].spec);
  EXPECT_EQ(best.out[0]->to_string(), "f32[8192, 4096](S0,S1)");
  // The same choice is the cheapest if the weight may move.
  Case free(kMatmul, "dp=2,tp=4", {"8192x1024:S0,R", "1024x4096:R,S1"});
  EXPECT_EQ(free.text(free.choose()), "m: dp; n: tp");
}

TEST(Choose, RowParallelLeavesAPartialSum) {
  Case c(kMatmul, "dp=2,tp=4", {"8192x4096:S0,S1", "4096x1024:R,S0!"});
  Choice best = c.choose();
  EXPECT_EQ(c.text(best), "m: dp; k: tp");
  EXPECT_EQ(best.comm_ps, 0);
  EXPECT_EQ(best.out[0]->to_string(), "f32[8192, 1024](S0,P)");
  EXPECT_EQ(best.reduce_ps,
            c.planner.cost().collective_ps(StepKind::kAllReduce, 0b10,
                                           4096 * 1024 * 4 * 3 / 2));
}

TEST(Choose, GradientOfAColumnParallelWeightStaysWithTheWeight) {
  // dW = x^T dy: x is split by rows over dp, dy by both.
  Case c("mk,mn->kn | linear 0; linear 1", "dp=2,tp=4",
         {"8192x1024:S0,R", "8192x4096:S0,S1"});
  Choice best = c.choose();
  EXPECT_EQ(c.text(best), "m: dp; n: tp");
  EXPECT_EQ(best.out[0]->to_string(), "f32[1024, 4096](P,S1)");
}

TEST(Choose, ParametersNeverMove) {
  std::vector<std::string> layouts;
  for (const char* a : {"R", "S0", "S1", "P"})
    for (const char* b : {"R", "S0", "S1", "P"})
      layouts.push_back(std::string(a) + "," + b);
  int refused = 0, taken = 0;
  for (const std::string& x : layouts)
    for (const std::string& w : layouts) {
      // Many tokens: gathering the weight would be the cheapest.
      Case c(kMatmul, "2x2", {"4096x8:" + x, "8x8:" + w + "!"});
      try {
        Choice best = c.choose();
        EXPECT_FALSE(c.planner.plan(c.in[1].spec, best.in[1]).communicates())
            << x << " " << w << ": " << c.text(best);
        ++taken;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("sending a parameter"),
                  std::string::npos)
            << e.what();
        ++refused;
      }
    }
  EXPECT_EQ(refused, 0) << "matmul can take any layout of its weight";
  EXPECT_EQ(taken, 256);
}

TEST(Choose, GatherOnUseGathersAndNothingElse) {
  // FSDP: many tokens, so that gathering the weight is the cheapest.
  Case c(kMatmul, "dp=4", {"65536x64:S0", "64x64:S0*"});
  Choice best = c.choose();
  EXPECT_EQ(c.text(best), "m: dp");
  EXPECT_TRUE(best.in[1]->is_replicated());
  const Plan& gather = c.planner.plan(c.in[1].spec, best.in[1]);
  EXPECT_EQ(best.comm_ps, gather.time_ps);
  EXPECT_GT(best.comm_ps, 0);
  // A parameter that stays makes the tokens move instead.
  Case stays(kMatmul, "dp=4", {"65536x64:S0", "64x64:S0!"});
  EXPECT_EQ(stays.text(stays.choose()), "k: dp");
  // It is never sent in another way, even if that is cheaper: here, by an
  // all-to-all that splits w by columns.
  Case across(kMatmul, "tp=4", {"8x4096:R", "4096x4096:S0*"});
  for (const Choice& choice : across.all()) {
    const Plan& plan = across.planner.plan(across.in[1].spec, choice.in[1]);
    if (!choice.feasible) {
      EXPECT_EQ(plan.steps.back().kind, StepKind::kAllToAll);
      continue;
    }
    for (const Step& s : plan.steps)
      EXPECT_TRUE(!sends(s.kind) || s.kind == StepKind::kAllGather)
          << to_string(s);
  }
}

TEST(Choose, RefusesWhenAParameterWouldHaveToMove) {
  Case c("n!->n", "tp=2", {"8:S0!"});
  EXPECT_EQ(testing::error_of([&] { c.choose(); }),
            "[test] there is no way to compute on f32[8](S0) (parameter) "
            "without sending a parameter; redistribute an input first, or do "
            "not call as_parameter() on a tensor that may be sent: "
            "set_requires_grad() alone asks for a gradient");
  EXPECT_EQ(Case("n!->n", "tp=2", {"8:S0"}).choose().out[0]->to_string(),
            "f32[8](R)");
}

TEST(Choose, AddOfWholeAndPartialReducesOnce) {
  for (bool first : {true, false}) {
    Case c(kAdd, "tp=4",
           {first ? "64x64:P" : "64x64:R", first ? "64x64:R" : "64x64:P"});
    Choice best = c.choose();
    const Spec* whole = Spec::replicated(c.mesh, {64, 64}, DType::kF32);
    const Spec* partial = c.in[first ? 0 : 1].spec;
    int64_t once = c.planner.plan(partial, whole).time_ps;
    EXPECT_GT(once, 0);
    EXPECT_EQ(best.comm_ps + best.reduce_ps, once);
  }
}

TEST(Choose, AddOfPartialsStaysPartial) {
  Case c(kAdd, "dp=2,tp=4", {"64x64:S0,P", "64x64:S0,P"});
  Choice best = c.choose();
  EXPECT_EQ(best.comm_ps, 0);
  EXPECT_EQ(best.out[0]->to_string(), "f32[64, 64](S0,P)");
  // Partials of different kinds cannot pass together.
  Case mixed(kAdd, "tp=4", {"64x64:P", "64x64:P(max)"});
  EXPECT_FALSE(mixed.choose().out[0]->partial_axes() &&
               mixed.choose().comm_ps == 0);
}

TEST(Choose, ProductOfPartialsNeverPasses) {
  Case c(kMul, "2x2", {"64x64:P,P", "64x64:P,R"});
  for (const Choice& choice : c.all())
    EXPECT_FALSE(choice.in[0]->partial_axes() & choice.in[1]->partial_axes())
        << c.text(choice);
  Choice best = c.choose();
  EXPECT_FALSE(best.in[0]->partial_axes() & best.in[1]->partial_axes());
  // On each axis, one operand may be partial: here (P,R) and (R,P).
  Case apart(kMul, "2x2", {"64x64:P,R", "64x64:R,P"});
  EXPECT_EQ(apart.choose().out[0]->to_string(), "f32[64, 64](P,P)");
  EXPECT_EQ(apart.choose().comm_ps, 0);
}

TEST(Choose, MonotoneFunctionsKeepExtremaAndReduceSums) {
  const char* kExp = "...->... | up 0";
  EXPECT_EQ(Case(kExp, "2", {"64:P(max)"}).choose().out[0]->to_string(),
            "f32[64](P(max))");
  EXPECT_EQ(Case(kExp, "2", {"64:P"}).choose().out[0]->to_string(),
            "f32[64](R)");
  EXPECT_EQ(Case("...->... | down 0", "2", {"64:P(max)"})
                .choose()
                .out[0]
                ->to_string(),
            "f32[64](P(min))");
  const char* kAffine = "...->... | affine 0";
  EXPECT_EQ(Case(kAffine, "2", {"64:P(avg)"}).choose().out[0]->to_string(),
            "f32[64](P(avg))");
  EXPECT_EQ(Case(kAffine, "2", {"64:P"}).choose().out[0]->to_string(),
            "f32[64](R)");
}

TEST(Choose, WholeInputsStayWhole) {
  // No input is split over an axis, so no factor is, whatever work that would
  // save.
  Case c(kMatmul, "2x2", {"512x512:R,R", "512x512:R,R"});
  EXPECT_EQ(c.text(c.choose()), "R");
}

// If every rank needs a split dimension whole, the input has to move. It moves
// to where another dimension is split, rather than to every rank.
TEST(Choose, AnAxisOfAPinnedFactorSplitsAnother) {
  const char* kFft = "mn!c!->mnc | linear 0";
  Case c(kFft, "x=3", {"300x210x2:S1"});
  const Choice best = c.choose();
  EXPECT_EQ(c.text(best), "m: x");
  EXPECT_EQ(best.in[0]->to_string(), "f32[300, 210, 2](S0)");
  const CostTable& cost = c.planner.cost();
  EXPECT_EQ(best.comm_ps,
            cost.collective_ps(StepKind::kAllToAll, 1, 100 * 140 * 2 * 4));
  EXPECT_EQ(best.reduce_ps,
            cost.collective_ps(StepKind::kAllGather, 1, 200 * 210 * 2 * 4));
  EXPECT_EQ(best.beyond, 0u);
  // For few numbers, a second latency costs more than the work that it saves.
  Case few(kFft, "x=3", {"3x6x2:S1"});
  EXPECT_EQ(few.text(few.choose()), "R");
  // The axis that splits the other dimension stays there.
  Case both(kFft, "x=3,y=2", {"300x210x2:S1,S0"});
  EXPECT_EQ(both.text(both.choose()), "m: y,x");
  // If a dimension is two factors, only a split of the pinned one (d) has to go
  // to another factor.
  for (const auto& [split, beyond] : {std::pair("d", 0u), std::pair("h", 1u)}) {
    Case c("b(hd!),d->bhd", "x=2",
           {fmt::format("4x64:S1(h=8 d=8:{})", split), "8:R"});
    bool seen = false;
    for (const Choice& choice : c.all()) {
      if (c.text(choice) != "b: x") continue;
      EXPECT_EQ(choice.beyond, beyond) << split;
      seen = true;
    }
    EXPECT_TRUE(seen);
  }
}

// A partial input asks for no split, unless no gradient follows and the work
// saved pays for all that is sent.
TEST(Choose, APartialInputIsSplitIfTheWorkSavedPays) {
  const char* kNorm = "mn!,n->mn";
  Case c(kNorm, "tp=4", {"4096x1024:P", "1024:R"});
  EXPECT_EQ(c.text(c.choose()), "R");
  const Choice split = c.choose(/*forward_only=*/true);
  EXPECT_EQ(c.text(split), "m: tp");
  EXPECT_EQ(split.beyond, 1u);
  EXPECT_EQ(split.basis, Basis::kForwardPrice);
  EXPECT_EQ(split.comm_ps,
            c.planner.cost().collective_ps(StepKind::kReduceScatter, 1,
                                           4096 / 4 * 1024 * 4 * 3));
  // Memory as fast as a GPU's: the work is not worth the gather, though the
  // split is the cheapest.
  CostTable fast;
  fast.ps_per_flop = 0.05;
  fast.ps_per_local_byte = 20;
  Case quick(kNorm, "tp=4", {"4096x1024:P", "1024:R"}, fast);
  EXPECT_EQ(quick.text(quick.all()[0]), "m: tp");
  EXPECT_EQ(quick.text(quick.choose(true)), "R");
  // If a note lets the partial pass, nothing has to be reduced.
  Case passes("mn,n->mn | linear 0", "tp=4", {"4096x1024:P", "1024:R"});
  EXPECT_EQ(passes.text(passes.choose(true)), "P(sum) over tp in 0");
  // A split of n~, for which the operator communicates itself, has no price
  // here, so it is not taken.
  Case inside("mn~,n->mn", "tp=4", {"4096x1024:P", "1024:R"});
  EXPECT_EQ(inside.text(inside.all()[0]), "n: tp");
  EXPECT_EQ(inside.text(inside.choose(true)), "m: tp");
  // A partial input asks for no split of another input's factors.
  CostTable slow;
  slow.ps_per_local_byte = 1e4;
  Case other("m,n->mn", "tp=4", {"2:P", "65536:R"}, slow);
  EXPECT_EQ(other.text(other.all()[0]), "n: tp");
  EXPECT_EQ(other.text(other.choose(true)), "m: tp");
}

TEST(Choose, OutputFollowsItsLargestOperand) {
  // The large operand is split at listed boundaries; the small one moves there.
  Case c(kAdd, "2", {"9:S0", "4x9:S1@0|2|9"});
  Choice best = c.choose();
  EXPECT_EQ(best.in[1], c.in[1].spec);
  EXPECT_EQ(best.out[0]->to_string(), "f32[4, 9](S1@0|2|9)");
  Case granule(kAdd, "2x2", {"15:S0,R", "3x15:S1/3,R"});
  EXPECT_EQ(granule.choose().out[0]->to_string(), "f32[3, 15](S1/3,R)");
  // Different granules meet at their least common multiple.
  Case both(kAdd, "2x4", {"30:S0/2,R", "3x30:R,S1/3"});
  int split_by_both = 0;
  for (const Choice& choice : both.all()) {
    const Split& s = choice.out[0]->dim(1).split();
    if (s.num_axes() != 2) continue;
    EXPECT_EQ(s.granule(), 6) << choice.out[0]->to_string();
    ++split_by_both;
  }
  EXPECT_EQ(split_by_both, 1);
}

TEST(Choose, PriceCountsThePostponedGather) {
  // The output is split although no input was, so the price includes a gather.
  Case c("n->n", "2", {"64:P"});
  Assignment a{{Dim(64, Split::over({0}))}, {}};
  Choice split = price(c.rule, c.in, c.dtypes, c.work, a, c.planner);
  const CostTable& cost = c.planner.cost();
  EXPECT_EQ(split.reduce_ps,
            cost.collective_ps(StepKind::kAllGather, 1, 32 * 4));
  EXPECT_EQ(split.comm_ps,
            cost.collective_ps(StepKind::kReduceScatter, 1, 32 * 4));
  Case there("n->n", "2", {"64:S0"});
  EXPECT_EQ(
      price(there.rule, there.in, c.dtypes, c.work, a, there.planner).reduce_ps,
      0);
}

TEST(Choose, WorkIsTheLargestShare) {
  Case c(kMatmul, "3", {"500x64:S0", "64x64:R"});
  Choice best = c.choose();
  EXPECT_EQ(best.work_ps, int64_t{167} * 64 * 64 * 2 * 10);
}

// If memory takes the time, bytes written count as much as bytes read: here, an
// outer product, whose output has nearly all bytes.
TEST(Choose, WorkCountsTheBytesOfOutputs) {
  Case c("m,n->mn | linear 0; linear 1", "2", {"1024:S0", "512:R"});
  Choice best = c.choose();
  EXPECT_EQ(best.work_ps, (512 + 512 + 512 * 512) * 4 * 100);
  CostTable fast;
  fast.ps_per_flop = 0;
  fast.ps_per_local_byte = 7;
  Case both("mn->mn,m", "2", {"8x6:S0"}, fast);
  EXPECT_EQ(both.choose().work_ps, (24 + 24 + 4) * 4 * 7);
}

// Operands that are split by one tree are computed on without a move.
TEST(Choose, TreesStay) {
  Mesh mesh = Mesh::parse("2x2");
  auto cut = [](int64_t n, std::vector<int> axes) {
    return Dim(n, Split::over(axes));
  };
  // A tree over both axes, a tree over the second alone, and a split that gives
  // rank 0 nothing.
  const Dim qk = Dim::concat({cut(6, {1, 0}), cut(4, {1, 0})});
  const Dim inner = Dim::product({Dim(2), cut(5, {1})});
  const Dim late = Dim(10, Split::at({0}, {0, 0, 10}, mesh));
  Planner planner;
  OpWork work{1};
  DType t = DType::kF32;
  for (const Dim& d : {qk, inner, late}) {
    Layout l{{Dim(3), d}, {}};
    OpInput x{Spec::get(mesh, {3, 10}, l, t)};
    OpInput bias{Spec::replicated(mesh, {10}, t)};
    std::vector<OpInput> both{x, x}, row{x, bias};
    for (const auto& in : {both, row}) {
      std::vector<Shape> shapes{{3, 10}, in[1].spec->shape()};
      BoundRule rule(Rule(kAdd), shapes, "test");
      Choice c = choose(rule, in, {&t, 1}, work, planner, "test");
      EXPECT_EQ(c.in[0], x.spec);
      EXPECT_EQ(c.out[0], x.spec);
      EXPECT_EQ(c.in[1]->layout().dims.back(), x.spec->dim(1));
      EXPECT_EQ(c.comm_ps, 0);
    }
    // A contraction over this dimension gives a partial sum.
    OpInput w{Spec::get(mesh, {10, 2}, Layout{{d, Dim(2)}, {}}, t)};
    std::vector<OpInput> in{x, w};
    BoundRule rule(Rule(kMatmul), {{3, 10}, {10, 2}}, "test");
    Choice c = choose(rule, in, {&t, 1}, work, planner, "test");
    EXPECT_EQ(c.in, (std::vector<SpecRef>{x.spec, w.spec}));
    EXPECT_EQ(c.out[0]->partial_axes(), d.axes());
    EXPECT_EQ(c.comm_ps, 0);
  }
  // Every rank has all of one segment; that segment is sliced, not sent.
  Layout l{{Dim::concat({Dim(4), cut(6, {0})})}, {}};
  OpInput x{Spec::get(mesh, {10}, l, t)};
  BoundRule sum(Rule("m->"), {{10}}, "test");
  Assignment a{{x.spec->dim(0)}, {}};
  Choice c = price(sum, {&x, 1}, {&t, 1}, work, a, planner);
  EXPECT_EQ(c.in[0]->dim(0),
            Dim::concat({cut(4, {0}), cut(6, {0})}).canonical(mesh));
  EXPECT_EQ(planner.plan(x.spec, c.in[0]).bytes, 0);
}

// True if every axis splits only factors that it splits in some input.
bool spreads_nothing(const Case& c, const Assignment& a) {
  for (size_t f = 0; f < a.dims.size(); ++f) {
    AxisMask there = 0;
    for (size_t i = 0; i < c.in.size(); ++i)
      for (size_t d = 0; d < c.rule.rule().inputs()[i].size(); ++d)
        if (c.rule.rule().inputs()[i][d] ==
            Rule::DimFactors{static_cast<int>(f)})
          there |= c.in[i].spec->dim(static_cast<int>(d)).axes();
    if (a.dims[f].axes() & ~there) return false;
  }
  return true;
}

// The choice is the cheapest of those in which an axis splits only what it
// splits in some input. It is the same each time, whatever was planned before.
TEST(Choose, CheapestAndDeterministic) {
  std::mt19937 gen(3);
  auto pick = [&](const std::vector<std::string>& of) {
    return of[gen() % of.size()];
  };
  const std::vector<std::string> two = {"R", "S0", "S1", "P", "P(max)"};
  Planner shared;
  for (int trial = 0; trial < 200; ++trial) {
    bool matmul = gen() % 2;
    auto layout = [&] { return pick(two) + "," + pick(two); };
    std::vector<std::string> in = {"6x10:" + layout(),
                                   (matmul ? "10x7:" : "6x10:") + layout()};
    Case c(matmul ? kMatmul : gen() % 2 ? kAdd : kMul, "2x3", in);
    Choice best = c.choose();
    Choice again = choose(c.rule, c.in, c.dtypes, c.work, shared, "test");
    EXPECT_EQ(best.assignment, again.assignment) << in[0] << " " << in[1];
    EXPECT_EQ(best.total_ps(), again.total_ps());
    std::vector<Choice> all = c.all();
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                               [](const Choice& a, const Choice& b) {
                                 return a.total_ps() < b.total_ps();
                               }));
    for (const Choice& other : all) {
      if (!spreads_nothing(c, other.assignment)) continue;
      EXPECT_LE(best.total_ps(), other.total_ps())
          << in[0] << " " << in[1] << ": " << c.text(best) << " before "
          << c.text(other);
    }
  }
}

// A sum of a whole and a partial operand stays partial at every size: only the
// operator that follows knows whether it needs it whole or in parts.
TEST(Choose, AResidualStaysPartial) {
  for (const char* size : {"8x6", "1024x256", "65536x4096"})
    for (bool first : {true, false}) {
      std::string shape = size;
      Case c(kAdd, "2",
             {shape + (first ? ":P" : ":R"), shape + (first ? ":R" : ":P")});
      Choice best = c.choose();
      EXPECT_EQ(c.text(best), "P(sum) over a0 in 0 1") << size;
      EXPECT_EQ(best.comm_ps, 0);
    }
  // A bias of the columns, and one that is a parameter.
  for (const char* bias : {"256:R,R", "256:R,R!"}) {
    Case c(kAdd, "dp=2,tp=4", {"1024x256:S0,P", bias});
    EXPECT_EQ(c.choose().comm_ps, 0);
    EXPECT_EQ(c.choose().out[0]->to_string(), "f32[1024, 256](S0,P)");
  }
  // The same if one operator does the product and adds the bias.
  Case addmm("mk,kn,n->mn | linear 0,2; linear 1,2", "tp=4",
             {"64x256:S1", "256x32:S0!", "32:R!"});
  EXPECT_EQ(addmm.choose().comm_ps, 0);
  EXPECT_EQ(addmm.choose().out[0]->to_string(), "f32[64, 32](P)");
}

// Prices all combinations, and sorts them.
std::vector<Choice> brute_force(Case& c, Reach reach) {
  FactorDims dims(c.rule, c.in);
  std::vector<Choice> all;
  combinations(axis_choices(c.rule, c.in, reach), [&](const auto& picked) {
    Assignment a;
    assemble(c.rule, picked, dims, a);
    all.push_back(price(c.rule, c.in, c.dtypes, c.work, a, c.planner));
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) {
                     return std::tuple(a.total_ps(), a.comm_ps, a.steps) <
                            std::tuple(b.total_ps(), b.comm_ps, b.steps);
                   });
  return all;
}

void expect_same(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.assignment, b.assignment);
  EXPECT_EQ(a.in, b.in);
  EXPECT_EQ(a.out, b.out);
  EXPECT_EQ(a.comm_ps, b.comm_ps);
  EXPECT_EQ(a.work_ps, b.work_ps);
  EXPECT_EQ(a.reduce_ps, b.reduce_ps);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.feasible, b.feasible);
}

struct RuleCase {
  const char* rule;
  std::vector<const char*> shapes;
};

// Prices that are equal, differ by axis, or are nothing.
CostTable random_prices(std::mt19937& gen, int axes) {
  CostTable t;
  switch (gen() % 4) {
    case 0:
      break;
    case 1:
      for (int a = 0; a < axes; ++a)
        t.axes.push_back({{static_cast<int64_t>(gen() % 8) * 1000000,
                           static_cast<double>(gen() % 400)}});
      break;
    case 2:
      t.axes.assign(static_cast<size_t>(axes), {{0, 0}});
      t.ps_per_flop = t.ps_per_local_byte = 0;
      break;
    case 3:
      t.block_bytes = 64;
  }
  return t;
}

// The operator sends rows to where the other factor lies: half of a rank's 4 x
// 8 numbers go to the other rank, and results come back.
TEST(Choose, WhatAnOperatorSendsHasAPrice) {
  Case c("th!,e~fh->th | link t e", "ep=2", {"8x8:S0", "2x3x8:S0!"});
  EXPECT_EQ(c.choose().comm_ps, 0);
  c.work.exchange = {'e', "th", 2};
  EXPECT_EQ(c.text(c.choose()), "t: ep; e: ep");
  EXPECT_EQ(c.choose().comm_ps, 2 * c.planner.cost().collective_ps(
                                        StepKind::kAllToAll, 1, 2 * 8 * 4));
  // Nothing travels where every rank has the whole of the other factor.
  Case whole("th!,e~fh->th | link t e", "ep=2", {"8x8:S0", "2x3x8:R!"});
  whole.work.exchange = {'e', "th", 2};
  EXPECT_EQ(whole.text(whole.choose()), "t: ep");
  EXPECT_EQ(whole.choose().comm_ps, 0);
  // If both inputs may move, the exchange may cost more than a gather.
  for (const auto& [ps, chosen] :
       {std::pair{1e-3, "t: ep; e: ep"}, std::pair{1e6, "t: ep"}}) {
    CostTable cost;
    cost.ps_per_flop = cost.ps_per_local_byte = 1e-6;
    cost.axes = {{{0, 1}}};
    cost.axes[0].kinds[static_cast<size_t>(StepKind::kAllToAll)] =
        LinkCost{0, ps};
    Case moves("th!,e~fh->th | link t e", "ep=2", {"8x8:S0", "2x3x8:S0"}, cost);
    moves.work.exchange = {'e', "th", 2};
    EXPECT_EQ(moves.text(moves.choose()), chosen);
    expect_same(moves.choose(), brute_force(moves, Reach::kMoved)[0]);
  }
}

// The output's positions m are in no split input, but the input's positions h,
// to which they are linked, are split. So m may be split, and nobody needs the
// output whole.
TEST(Choose, ALinkedFactorIsWithinReach) {
  Case c("bh~,m->bm^ | link m h", "tp=4", {"8192x512:S1", "256:R!"});
  EXPECT_EQ(c.text(c.choose()), "h: tp; m: tp");
  EXPECT_EQ(c.choose().comm_ps, 0);
  EXPECT_EQ(c.choose().reduce_ps, 0);
  EXPECT_EQ(c.choose().out[0]->to_string(), "f32[8192, 256](S1)");
  expect_same(c.choose(), brute_force(c, Reach::kMoved)[0]);
}

// The operator sends a sum of each row to every other rank: less than the rows.
TEST(Choose, SumsOfRowsHaveAPrice) {
  Case c("mn~->mn^", "tp=4", {"6x64:S1"});
  EXPECT_EQ(c.choose().comm_ps, 0);
  c.work.exchange = {'n', "", 1};
  EXPECT_EQ(c.text(c.choose()), "n: tp");
  EXPECT_EQ(c.choose().comm_ps,
            c.planner.cost().collective_ps(StepKind::kAllToAll, 1, 6 * 3 * 8));
  expect_same(c.choose(), brute_force(c, Reach::kMoved)[0]);
}

// Each rank sends its part of the second input, in a turn of its own. The price
// adds up what the ranks of each of two factors send.
TEST(Choose, TurnsHaveAPrice) {
  Case c("m~n!,Zm^k->Zmk", "tp=4", {"64x64:S0!", "2x64x6:S1"});
  c.work.exchange = {'m', "mk.", 1, 1.0};
  EXPECT_EQ(c.text(c.choose()), "m: tp");
  EXPECT_EQ(c.choose().comm_ps,
            4 * c.planner.cost().collective_ps(StepKind::kAllToAll, 1,
                                               2 * 16 * 6 * 3 * 4 / 4));
  Case both("m~n~->m^n^", "x=2,y=4", {"16x16:S0,S1!"});
  both.work.exchange = {'m', "*", 2, 0.5, 'n'};
  const CostTable& cost = both.planner.cost();
  EXPECT_EQ(both.text(both.choose()), "m: x; n: y");
  EXPECT_EQ(both.choose().comm_ps,
            4 * cost.collective_ps(StepKind::kAllToAll, 1, 8 * 4 * 4 / 2 / 4) +
                8 * cost.collective_ps(StepKind::kAllToAll, 2,
                                       8 * 4 * 3 * 4 / 4 / 4));
}

// A dimension is two factors, either of which may be split. The factor that is
// split already, three indices over two ranks, needs no move, but a third more
// work.
TEST(Choose, WhatLiesInPlaceIsNotTakenWhenAnotherFactorIsCheaper) {
  CostTable cost;
  for (double ps_per_flop : {1e-3, 1e6}) {
    cost.ps_per_flop = ps_per_flop;
    Case c("b(hd),d->bhd | linear 0", "tp=2", {"4x3072:S1(1024 d:d)", "3:S0"},
           cost);
    EXPECT_EQ(c.text(c.choose()), ps_per_flop < 1 ? "d: tp" : "h: tp");
    expect_same(c.choose(), brute_force(c, Reach::kMoved)[0]);
  }
}

// Compares choose() and all_choices() with the full product, for many rules,
// layouts, meshes of one to four axes, and prices.
TEST(Choose, BranchAndBoundFindsWhatTheFullProductHolds) {
  const RuleCase rules[] = {
      {kMatmul, {"6x10", "10x7"}},
      {kAdd, {"6x10", "6x10"}},
      {kAdd, {"6x10", "10"}},
      {kMul, {"1x1", "1x1"}},
      {"mk,kn,n->mn | linear 0,2; linear 1,2", {"4x6", "6x8", "8"}},
      {"mn->m | max 0; n:max", {"6x9"}},
      {"mn->m,n", {"6x9"}},
      {"mn~->mn | up 0", {"6x8"}},
      {"b(hd),d->bhd | linear 0", {"4x12", "3"}},
      {"bshd,btgd->bshd | link h g", {"2x3x4x2", "2x3x2x2"}},
      {"m!n,n^->mn | affine 0; down 1", {"6x4", "4"}},
      {"th!,e~fh->th | link t e", {"6x4", "3x2x4"}},
  };
  const std::vector<std::string> placements = {"R",  "R", "S0",     "S1",
                                               "S2", "P", "P(max)", "P(avg)"};
  std::mt19937 gen(11);
  int compared = 0, refused = 0, paid = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const RuleCase& r = rules[gen() % std::size(rules)];
    // Meshes of four axes matter most, but the full product takes long on them.
    const char* meshes[] = {"4", "2x3", "2x2x2", "2x2", "3x1x2", "2x2x2x2"};
    const Mesh mesh = Mesh::parse(meshes[gen() % (trial % 8 ? 5 : 6)]);
    std::vector<std::string> in;
    for (const char* shape : r.shapes) {
      const int ndim = parse_shape(shape, "test").size();
      std::string text = std::string(shape) + ":";
      for (int a = 0; a < mesh.num_axes(); ++a) {
        std::string p;
        do p = placements[gen() % placements.size()];
        while (p[0] == 'S' && p[1] - '0' >= ndim);
        text += (a ? "," : "") + p;
      }
      const char* keep[] = {"", "", "", "!", "*"};
      in.push_back(text + keep[gen() % 5]);
    }
    SCOPED_TRACE(std::string(r.rule) + " on " + mesh.to_string() + ": " +
                 in[0] + " " + (in.size() > 1 ? in[1] : ""));
    Case c(r.rule, mesh.to_string().c_str(), in,
           random_prices(gen, mesh.num_axes()));
    // Some operators communicate while they compute.
    const auto& factors = c.rule.rule().factors();
    if (trial % 3 == 0)
      c.work.exchange = {factors[gen() % factors.size()].letter, "mnth",
                         static_cast<int>(gen() % 3),
                         static_cast<double>(trial % 2), 'h'};
    std::vector<Choice> all = brute_force(c, Reach::kMoved);
    std::erase_if(all, [](const Choice& x) { return !x.feasible; });
    if (all.empty()) {
      EXPECT_THROW(c.choose(), Error);
      ++refused;
      continue;
    }
    // Earlier plans change nothing.
    expect_same(c.choose(), all[0]);
    c.planner = Planner(c.planner.cost());
    expect_same(c.choose(), all[0]);
    EXPECT_EQ(c.choose().beyond, 0u);
    ++compared;
    std::vector<Choice> wider = brute_force(c, Reach::kReduced);
    std::erase_if(wider, [](const Choice& x) { return !x.feasible; });
    const bool pays = wider[0].total_ps() < all[0].total_ps() - all[0].comm_ps;
    expect_same(c.choose(/*forward_only=*/true), pays ? wider[0] : all[0]);
    paid += pays && wider[0].assignment != all[0].assignment;
    if (mesh.num_axes() > 2) continue;
    std::vector<Choice> every = brute_force(c, Reach::kAll), listed = c.all();
    ASSERT_EQ(listed.size(), every.size());
    for (size_t i = 0; i < every.size(); ++i) expect_same(listed[i], every[i]);
    std::vector<Choice> first =
        all_choices(c.rule, c.in, c.dtypes, c.work, c.planner, 3);
    ASSERT_EQ(first.size(), std::min<size_t>(3, every.size()));
    for (size_t i = 0; i < first.size(); ++i) expect_same(first[i], every[i]);
  }
  EXPECT_GT(compared, 250);
  EXPECT_GT(refused, 0);
  EXPECT_GT(paid, 0);
}

TEST(Choose, TiesGoToFewerStepsThenToTheFirst) {
  CostTable free;
  free.axes = {{0, 0}};
  free.ps_per_flop = free.ps_per_local_byte = 0;
  // All prices are 0, so the fewest steps decide: no step at all.
  Case c(kMul, "2", {"64:S0", "64:S0"}, free);
  EXPECT_EQ(c.text(c.choose()), "Z: a0");
  // No step is saved by splitting: whole comes first.
  Case d(kMul, "2", {"64:S0", "64:R"}, free);
  EXPECT_EQ(d.text(d.choose()), "R");
  // Either partial may pass; the first note is taken.
  Case e(kMul, "2", {"64:P", "64:P"}, free);
  EXPECT_EQ(e.text(e.choose()), "P(sum) over a0 in 0");
}

TEST(Choose, TiesOfCandidatesGoToFewerSteps) {
  CostTable free;
  free.axes = {{0, 0}};
  free.ps_per_flop = free.ps_per_local_byte = 0;
  Planner planner(free);
  const Mesh mesh = Mesh::parse("2");
  const OpInput split[] = {input(mesh, "64:S0")};
  const Spec *here = split[0].spec, *whole = input(mesh, "64:R").spec;
  const Candidate moves{{whole}, {whole}}, stays{{here}, {here}};
  for (const auto& list : {std::vector{moves, stays}, {stays, moves}}) {
    const Choice c = choose(list, split, {}, planner, "test");
    EXPECT_EQ(c.out[0], here);
    EXPECT_EQ(c.steps, 0);
  }
}

TEST(Enumerate, EveryChoiceOnEveryAxis) {
  Mesh one = Mesh::parse("2"), two = Mesh::parse("2x3");
  const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax,
                          ReduceOp::kMin};
  auto count = [&](const char* rule, const std::vector<Shape>& shapes,
                   const Mesh& mesh) {
    return enumerate(BoundRule(Rule(rule), shapes, "test"), mesh, ops).size();
  };
  // No split, m, k or n; a partial sum or average in either operand.
  EXPECT_EQ(count(kMatmul, {{5, 3}, {3, 4}}, one), 8u);
  EXPECT_EQ(count(kMatmul, {{5, 3}, {3, 4}}, two), 64u);
  EXPECT_EQ(count(kAdd, {{5, 3}, {3}}, one), 5u);
  EXPECT_EQ(count("...->... | up 0", {{5, 3}}, one), 5u);
  EXPECT_EQ(count("m!n~->m", {{5, 3}}, one), 2u);
  EXPECT_EQ(count("bh,bg->bh | link h g", {{2, 4}, {2, 2}}, one), 4u);
  const ReduceOp sum[] = {ReduceOp::kSum};
  const std::vector<Shape> shapes{{5, 3}, {3, 4}};
  BoundRule rule(Rule(kMatmul), shapes, "test");
  EXPECT_EQ(enumerate(rule, one, sum).size(), 6u);
  EXPECT_EQ(enumerate(rule, one, {}).size(), 4u);
  // All different, and each with layouts that are legal.
  auto all = enumerate(rule, two, ops);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i] == all[j]);
    for (int k = 0; k < 2; ++k)
      Spec::get(two, shapes[static_cast<size_t>(k)],
                rule.input_layout(all[i], two, k), DType::kF32);
  }
}

TEST(Planner, RemembersPlans) {
  Mesh mesh = Mesh::parse("2");
  OpInput a = input(mesh, "8:S0"), b = input(mesh, "8:R");
  Planner p;
  const Plan* first = &p.plan(a.spec, b.spec);
  EXPECT_EQ(&p.plan(a.spec, b.spec), first);
  EXPECT_EQ(p.plan_use().hits, 1);
  EXPECT_EQ(p.plan_use().misses, 1);
  EXPECT_EQ(p.plan(b.spec, a.spec).bytes, 0);
  EXPECT_EQ(p.plan_use().misses, 2);
  // A list of moves has a plan of its own, which depends on the list's order.
  const Move moves[] = {{a.spec, b.spec}, {b.spec, a.spec}};
  const Move turned[] = {moves[1], moves[0]};
  const Plan* list = &p.plan(moves);
  EXPECT_EQ(list->bytes, first->bytes);
  EXPECT_EQ(&p.plan(moves), list);
  EXPECT_NE(&p.plan(turned), list);
  EXPECT_EQ(p.list_use().misses, 2);
  EXPECT_EQ(p.list_use().hits, 1);
}

// A plan that one of the planners has searched for is the other's too.
TEST(Planner, SharesPlans) {
  const Mesh mesh = Mesh::parse("2x2");
  const OpInput a = input(mesh, "8,8:S0,R"), b = input(mesh, "8,8:R,S0");
  const Move moves[] = {{a.spec, b.spec}, {b.spec, a.spec}};
  const auto shared = std::make_shared<SharedPlans>();
  Planner p(CostTable{}, shared), q = p.for_another_thread(), alone;
  const Plan& one = p.plan(a.spec, b.spec);
  EXPECT_EQ(&q.plan(a.spec, b.spec), &one);
  EXPECT_EQ(q.plan_use().misses, 1);
  const Plan& list = p.plan(moves);
  EXPECT_EQ(&q.plan(moves), &list);
  EXPECT_NE(&alone.plan(a.spec, b.spec), &one);
  EXPECT_NE(&alone.plan(moves), &list);
  EXPECT_EQ(alone.plan(moves).bytes, list.bytes);
}

// Ever new shapes, as a server sees them: what the planner holds is bounded.
TEST(Planner, HoldsABoundedNumberOfPlans) {
  Mesh mesh = Mesh::parse("2x2");
  Planner p;
  for (int64_t n = 1; n <= 30000; ++n) {
    const std::string shape = std::to_string(n) + ":";
    p.plan(input(mesh, shape + "S0,R").spec, input(mesh, shape + "R,S0").spec);
  }
  CacheUse use = p.plan_use();
  EXPECT_EQ(use.misses, 30000);
  EXPECT_LE(use.weight, use.limit);
  EXPECT_LT(use.entries, 30000u);
}

}  // namespace
}  // namespace dtensor
