// SPDX-License-Identifier: Apache-2.0
// The rule language: its text, its layouts against brute force, the gradients
// of contractions.
#include "dtensor/placement/rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/bound_rule.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "tests/placement/strategies.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

TEST(Rule, TextRoundTrips) {
  for (const char* text : {
           "mk,kn->mn | linear 0; linear 1",
           "...mk,...kn->...mn | linear 0; linear 1",
           "->",
           "->m",
           "mn->m",
           "b(hd)->bhd | linear 0",
           "bhd->b(hd)",
           "m1,mn->mn",
           "vh,...->...h | linear 0",
           "m!n~->m,m",
           "mn->m | max 0; n:max",
           "...->... | down 0",
           "...,...->... | linear 0,1",
           "...->... | affine 0; up 0; min 0",
           "bshd,btgd,btgd->bshd | linear 2; link h g",
           "(ab)(cd)->(ac)(bd)",
           "MK,KN->MN",
           "...n~->...n^",
           "n!,mn^->mn",
           "(h^d~)->hd^,d",
       }) {
    Rule r(text);
    EXPECT_EQ(r.to_string(), text);
    EXPECT_EQ(Rule(r.to_string()), r) << text;
  }
  // Spaces, and a mark at a later occurrence of a letter, change only the text.
  EXPECT_EQ(Rule(" m k , k n -> m n|linear 0 ; linear 1 ").to_string(),
            "mk,kn->mn | linear 0; linear 1");
  EXPECT_EQ(Rule("mk,k~n->mn").to_string(), "mk~,kn->mn");
  EXPECT_EQ(Rule("(m)()->m").to_string(), "m1->m");
  EXPECT_EQ(Rule("(h d)->h d").to_string(), "(hd)->hd");
}

// A rule with more than ten inputs.
TEST(Rule, NotesNameInputsByNumber) {
  const Rule r(",,,,,,,,,,,m->m | linear 11; linear 0,10");
  EXPECT_EQ(r.notes()[0].inputs, std::vector<int>{11});
  EXPECT_EQ(r.notes()[1].inputs, (std::vector<int>{0, 10}));
  EXPECT_EQ(Rule(r.to_string()), r);
}

// A fuzzer found this text: a letter was taken for an input's number, and there
// were enough inputs for that number.
TEST(Rule, ALetterIsNoInput) {
  const std::string text = std::string(29, ',') + "ilka,bc^->|affine 0,,,A0";
  EXPECT_NE(error_of([&] { Rule r(text); }).find("has no input ''"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Rule r(std::string(29, ',') + "ilka,bc^->|affine 0,A");
            }).find("has no input 'A'"),
            std::string::npos);
}

// Any text is an Error, or a rule that its own text gives again and that can be
// bound to sizes, or refuses them.
TEST(Rule, MutatedTextsAreErrorsOrRules) {
  const std::vector<std::string> seeds = {
      "mk,kn->mn | linear 0; linear 1",
      "...mk,...kn->...mn | linear 0; linear 1",
      "...n~->...n^ | up 0; n:max",
      "bshd,btgd,btgd->bshd | linear 2; link h g",
      "(ab!)(cd)->(ac)(b1d)",
      std::string(29, ',') + "ilka,bc^->|affine 0,,,A0",
  };
  const std::string alphabet = "abkmn.1()!~^,->| ;:0123456789linearmxupdow\0A";
  std::mt19937 gen(17);
  int rules = 0, errors = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    std::string text = seeds[gen() % seeds.size()];
    for (size_t edits = 1 + gen() % 4; edits > 0; --edits) {
      const size_t at = gen() % (text.size() + 1);
      const size_t length = gen() % 4;
      switch (gen() % 4) {
        case 0:
          text.insert(at, 1, alphabet[gen() % alphabet.size()]);
          break;
        case 1:
          text.erase(std::min(at, text.size()), length);
          break;
        case 2:
          if (at < text.size())
            text[at] = static_cast<char>(gen() % 8 ? alphabet[gen() % 40]
                                                   : gen() % 256);
          break;
        case 3: {
          const std::string& other = seeds[gen() % seeds.size()];
          text.insert(at, other.substr(gen() % other.size(), 1 + 4 * length));
        }
      }
    }
    try {
      const Rule r(text);
      ASSERT_EQ(Rule(r.to_string()), r) << text;
      ASSERT_EQ(Rule(r.to_string()).to_string(), r.to_string()) << text;
      ++rules;
      std::vector<Shape> shapes;
      for (const Rule::Term& t : r.inputs()) {
        Shape shape;
        for (const auto& d : t) {
          if (shape.size() == kMaxDims) break;
          shape.push_back(d.empty() ? 1 : int64_t{1} << 2 * d.size());
        }
        shapes.push_back(shape);
      }
      std::vector<std::pair<char, int64_t>> sizes;
      for (const Factor& f : r.factors())
        sizes.push_back({f.letter, trial % 3 ? 4 : int64_t{1} << 40});
      BoundRule bound(r, shapes, "fuzz", sizes);
      bound.choices();
    } catch (const Error&) {
      ++errors;
    }
  }
  EXPECT_GT(rules, 2000);
  EXPECT_GT(errors, 5000);
}

TEST(Rule, Parts) {
  Rule r("m k!,k n~->m n | linear 0,1; n:avg; link m k");
  ASSERT_EQ(r.factors().size(), 3u);
  EXPECT_EQ(r.factor('k'), 1);
  EXPECT_EQ(r.factor('z'), -1);
  const Factor &m = r.factors()[0], &k = r.factors()[1], &n = r.factors()[2];
  EXPECT_TRUE(!m.contracted && !m.pinned && !m.inside);
  EXPECT_TRUE(k.contracted && k.pinned && !k.inside);
  EXPECT_TRUE(!n.contracted && !n.pinned && n.inside);
  EXPECT_EQ(k.reduction, ReduceOp::kSum);
  EXPECT_EQ(n.reduction, ReduceOp::kAvg);
  EXPECT_EQ(r.links(), (std::vector<std::pair<int, int>>{{0, 1}}));
  ASSERT_EQ(r.notes().size(), 1u);
  EXPECT_EQ(r.notes()[0].inputs, (std::vector<int>{0, 1}));
  EXPECT_TRUE(Rule("...->").has_ellipsis());
  EXPECT_FALSE(r.has_ellipsis());
}

TEST(Rule, ErrorsSayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"mk", "has no '->'"},
      {"", "has no '->'"},
      {"m->n->k", "has '-' where a letter belongs"},
      {"m2->m", "has '2' where a letter belongs"},
      {"m!!->m", "has '!' where a letter belongs"},
      {"!m->m", "has '!' where a letter belongs"},
      {"(mn->m", "has a '(' without ')'"},
      {"mn)->m", "has ')' where a letter belongs"},
      {"(1h)->h", "has '1' where a letter belongs"},
      {"(..h)->h", "has '.' where a letter belongs"},
      {"..m->m", "has a '.' that is not '...'"},
      {"......->...", "has '...' twice in one term"},
      {"(abcdefghijklmnop)->a", "has a dimension of more than 15 factors"},
      {"mm->m", "has 'm' twice in one term"},
      {"m(nm)->m", "has 'm' twice in one term"},
      {"m->nn", "has 'n' twice in one term"},
      {"m!k,m~->k", "marks 'm' with both '!' and '~'"},
      {"m->m |", "has the incomplete note ''"},
      {"m->m | linear", "has the incomplete note 'linear'"},
      {"m->m | cubic 0", "has the unknown note 'cubic 0'"},
      {"m->m | linear 1", "has no input '1'"},
      {"m->m | linear x", "has no input 'x'"},
      {"m->m | linear ,", "has no input ''"},
      {"m->m | linear 0,", "has no input ''"},
      {"m->m | linear 0,,0", "has no input ''"},
      {"m->m | linear 00x", "has no input '00x'"},
      {"m->m | linear -0x", "has no input '-0x'"},
      {"m,m->m | linear 0,0", "names input 0 twice in one note"},
      {"m->m | linear 4294967296", "has no input '4294967296'"},
      {"m->m | linear 0;", "has the incomplete note ''"},
      {"m->m | m:most", "names an unknown reduction in 'm:most'"},
      {"m->m | k:max", "names 'k' in a note, but has no such factor"},
      {"m->m | link m", "has a 'link' that is not followed by two letters"},
      {"m->m | link m,n", "has a 'link' that is not followed by two letters"},
      {"m->m | link m k", "names 'k' in a note, but has no such factor"},
  };
  for (auto [text, what] : cases) {
    std::string e = error_of([&, t = text] { Rule r(t); });
    EXPECT_NE(e.find(what), e.npos) << "'" << text << "': " << e;
    EXPECT_NE(e.find("see the grammar in dtensor/placement/rule.h"), e.npos)
        << e;
    EXPECT_NE(e.find(std::string("'") + text + "'"), e.npos) << e;
  }
}

TEST(Rule, WhatPartialsPass) {
  auto text = [](Linearity kind) {
    std::string t;
    for (int op = 0; op <= static_cast<int>(ReduceOp::kMean); ++op) {
      auto out = PartialNote{kind, {0}}.pass(static_cast<ReduceOp>(op));
      if (!out) continue;
      t +=
          (t.empty() ? "" : " ") + std::string(name(static_cast<ReduceOp>(op)));
      if (*out != static_cast<ReduceOp>(op)) t += ">" + std::string(name(*out));
    }
    return t;
  };
  EXPECT_EQ(text(Linearity::kLinear), "sum avg");
  EXPECT_EQ(text(Linearity::kAffine), "avg");
  EXPECT_EQ(text(Linearity::kUp), "max min");
  EXPECT_EQ(text(Linearity::kDown), "max>min min>max");
  EXPECT_EQ(text(Linearity::kMax), "max");
  EXPECT_EQ(text(Linearity::kMin), "min");
}

TEST(Rule, ExpandBroadcasts) {
  auto expanded = [](const char* text, const std::vector<Shape>& shapes) {
    return Rule(text).expand(shapes, "test").to_string();
  };
  constexpr const char* kMatmul = "...mk,...kn->...mn | linear 0; linear 1";
  EXPECT_EQ(expanded(kMatmul, {{3, 4}, {4, 5}}),
            "mk,kn->mn | linear 0; linear 1");
  EXPECT_EQ(expanded(kMatmul, {{2, 1, 3, 4}, {7, 4, 5}}),
            "Y1mk,Zkn->YZmn | linear 0; linear 1");
  EXPECT_EQ(expanded("...,...->...", {{1, 3}, {2, 1}}), "1Z,Y1->YZ");
  EXPECT_EQ(expanded("...,...->...", {{}, {2, 1}}), ",YZ->YZ");
  // A dimension that is 1 in all inputs is a factor of size 1.
  EXPECT_EQ(expanded("...,...->...", {{1}, {1}}), "Z,Z->Z");
  EXPECT_EQ(expanded("...,...->...", {{1, 0}, {3, 1}}), "1Z,Y1->YZ");
  EXPECT_EQ(expanded("m...n,n->m...", {{2, 3, 5, 4}, {4}}), "mYZn,n->mYZ");
  EXPECT_EQ(expanded("m->m", {{2}}), "m->m");
  // Batch dimensions that the output lacks are contracted.
  Rule all = Rule("...->").expand({{2, 3}}, "test");
  EXPECT_TRUE(all.factors()[0].contracted && all.factors()[1].contracted);
  auto error = [&](const char* text, const std::vector<Shape>& shapes) {
    return error_of([&] { expanded(text, shapes); });
  };
  EXPECT_EQ(error(kMatmul, {{3, 4}}),
            "[test] takes 2 inputs, but got 1; pass 2");
  EXPECT_EQ(error(kMatmul, {{3, 4}, {4}}),
            "[test] input 1 of shape [4] has too few dimensions; pass an input "
            "with 2 or more");
  EXPECT_EQ(error(kMatmul, {{2, 3, 4}, {3, 4, 5}}),
            "[test] input 1 of shape [3, 4, 5] does not broadcast with the "
            "inputs before it: size 3 of its dimension 0 meets size 2; make "
            "the two equal, or one of them 1");
  EXPECT_EQ(error("...Z->...", {{3, 4}}),
            "[test] the rule ...Z->... has the letter Z, which stands for a "
            "dimension of \"...\"; write another letter");
}

TEST(BoundRule, SizesFromShapes) {
  auto bind = [](const char* text, const std::vector<Shape>& shapes) {
    return BoundRule(Rule(text), shapes, "test");
  };
  BoundRule r = bind("...mk,...kn->...mn", {{2, 1, 3, 4}, {7, 4, 5}});
  EXPECT_EQ(r.output_shape(0), (Shape{2, 7, 3, 5}));
  EXPECT_EQ(r.points(), 2 * 7 * 3 * 4 * 5);
  EXPECT_EQ(r.size(r.rule().factor('k')), 4);
  // In a group, the size of one unknown factor follows from the known ones.
  BoundRule g = bind("b(hd),d->bh", {{2, 12}, {4}});
  EXPECT_EQ(g.output_shape(0), (Shape{2, 3}));
  BoundRule extra(Rule("b(hd)->bhd"), {{2, 12}}, "test", {{'h', 3}});
  EXPECT_EQ(extra.output_shape(0), (Shape{2, 3, 4}));
  EXPECT_EQ(BoundRule(Rule("m->mn"), {{2}}, "test", {{'n', 5}}).output_shape(0),
            (Shape{2, 5}));

  auto error = [&](const char* text, const std::vector<Shape>& shapes) {
    return error_of([&] { bind(text, shapes); });
  };
  EXPECT_EQ(error("mk,kn->mn", {{3, 4}}),
            "[test] takes 2 inputs, but got 1; pass 2");
  EXPECT_EQ(
      error("mk,kn->mn", {{3, 4}, {5, 6}}),
      "[test] shapes [3, 4] and [5, 6] do not fit together: 'k' of the rule "
      "mk,kn->mn is both 4 and 5; give these dimensions the same size");
  EXPECT_EQ(error("mk,kn->mn", {{3, 4}, {4}}),
            "[test] input 1 of shape [4] does not fit the rule mk,kn->mn; pass "
            "an input with 2 dimensions");
  EXPECT_EQ(error("m1->m", {{3, 2}}),
            "[test] input 0 of shape [3, 2] has size 2 in dimension 1, but the "
            "rule m1->m needs size 1 there; pass an input with that size");
  EXPECT_EQ(error("b(hd),d->bh", {{2, 10}, {4}}),
            "[test] dimension 1 of input 0 has size 10, which is not a "
            "multiple of 4, the product of the known sizes of its factors in "
            "the rule b(hd),d->bh; change its size or those of the factors");
  EXPECT_EQ(
      error("m->mn", {{2}}),
      "[test] no input gives the size of 'n' in the rule m->mn; write the "
      "letter as a dimension of its own in an input of the rule, or have the "
      "operator pass its size");
  int64_t big = int64_t{1} << 40;
  EXPECT_NE(error("m,n->mn", {{big}, {big}}), "no error");
}

TEST(BoundRule, Choices) {
  auto text = [](const char* rule, const std::vector<Shape>& shapes) {
    BoundRule r(Rule(rule), shapes, "test");
    std::string t;
    for (const auto& list : r.choices()) {
      t += t.empty() ? "" : " ";
      for (int f : list) t += r.rule().factors()[static_cast<size_t>(f)].letter;
    }
    return t;
  };
  EXPECT_EQ(text("mk,kn->mn", {{2, 3}, {3, 4}}), "m k n");
  EXPECT_EQ(text("mk!,kn~->mn", {{2, 3}, {3, 4}}), "m n");
  EXPECT_EQ(text("sh,tg->sh | link h g", {{2, 4}, {3, 2}}), "s h hg t");
}

TEST(BoundRule, LargestShareAndText) {
  Mesh mesh = Mesh::parse("dp=2,tp=3");
  BoundRule r(Rule("mk,kn->mn | linear 0"), {{5, 4}, {4, 7}}, "test");
  auto cut = [](int64_t n, std::vector<int> axes, int64_t granule = 1) {
    return Dim(n, Split::over(axes, granule));
  };
  Assignment a{{cut(5, {0}), Dim(4), cut(7, {1})}, {}};
  EXPECT_DOUBLE_EQ(r.largest_share(a, mesh), 3.0 / 5 * 3.0 / 7);
  EXPECT_EQ(r.to_string(a, mesh), "m: dp; n: tp");
  a = {{cut(5, {1, 0}, 5), Dim(4), Dim(7)}, {}};
  EXPECT_EQ(r.to_string(a, mesh), "m: tp,dp/5");
  a = {{Dim::concat({cut(2, {0}), cut(3, {1})}), Dim(4), Dim(7)}, {}};
  EXPECT_EQ(r.to_string(a, mesh), "m: dp,tp in a tree");
  EXPECT_DOUBLE_EQ(r.largest_share(a, mesh), 2.0 / 5);
  a = {{Dim(5), Dim(4), Dim(7)}, {{1, 0, ReduceOp::kSum}}};
  EXPECT_EQ(r.to_string(a, mesh), "P(sum) over tp in 0");
  a.passes.clear();
  EXPECT_EQ(r.to_string(a, mesh), "R");
  EXPECT_EQ(r.largest_share(a, mesh), 1);
  // A query head meets one head of keys: splitting both splits the work once.
  BoundRule heads(Rule("sh,tg->sh | link h g"), {{2, 4}, {3, 2}}, "test");
  EXPECT_EQ(heads.points(), 2 * 4 * 3);
  a = {{Dim(2), cut(4, {0}), Dim(3), cut(2, {0})}, {}};
  EXPECT_EQ(heads.largest_share(a, mesh), 0.5);
}

// ---------------------------------------------------------------------------
// Contractions on integers, by loops over all factors' values.

using Point = std::vector<int64_t>;    // a value of each factor
using Numbers = std::vector<int64_t>;  // row-major

template <class Fn>
void each_point(const Point& sizes, Fn&& fn) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  Point p(sizes.size());
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = i;
    for (size_t f = sizes.size(); f-- > 0; rest /= sizes[f])
      p[f] = rest % sizes[f];
    fn(p);
  }
}

// The offset at which a term stores the element of a point.
size_t offset(const Rule::Term& term, const Point& p, const Point& sizes) {
  int64_t at = 0;
  for (const auto& dim : term)
    for (int f : dim)
      at = at * sizes[static_cast<size_t>(f)] + p[static_cast<size_t>(f)];
  return static_cast<size_t>(at);
}

// Sums the products of the operands at the points that `here` accepts.
template <class Here>
Numbers contraction(const BoundRule& r, const std::vector<Numbers>& in,
                    Here&& here) {
  Point sizes;
  for (size_t f = 0; f < r.rule().factors().size(); ++f)
    sizes.push_back(r.size(static_cast<int>(f)));
  Numbers out(static_cast<size_t>(numel(r.output_shape(0))), 0);
  each_point(sizes, [&](const Point& p) {
    if (!here(p)) return;
    int64_t product = 1;
    for (size_t i = 0; i < in.size(); ++i)
      product *= in[i][offset(r.rule().inputs()[i], p, sizes)];
    out[offset(r.rule().outputs()[0], p, sizes)] += product;
  });
  return out;
}

Numbers numbers(int64_t n, std::mt19937& gen) {
  Numbers a;
  for (int64_t i = 0; i < n; ++i)
    a.push_back(static_cast<int64_t>(gen() % 19) - 7);
  return a;
}

struct Contraction {
  const char* text;
  std::vector<Shape> shapes;
  std::vector<std::pair<char, int64_t>> extra = {};
};
const std::vector<Contraction>& contractions() {
  static const auto* all = new std::vector<Contraction>{
      {"mk,kn->mn | linear 0; linear 1", {{5, 3}, {3, 4}}},
      {"...mk,...kn->...mn | linear 0; linear 1", {{2, 1, 3, 2}, {3, 2, 5}}},
      {"...,...->... | linear 0; linear 1", {{4, 1}, {5}}},
      {"mn->m | linear 0", {{5, 7}}},
      {"mn->n | linear 0", {{1, 7}}},
      {"mn-> | linear 0", {{3, 5}}},
      {"m->mn | linear 0", {{5}}, {{'n', 3}}},
      {"ab,bc,ca-> | linear 0; linear 1; linear 2", {{3, 2}, {2, 5}, {5, 3}}},
      {"mn->nm | linear 0", {{0, 4}}},
      {"b(hd),bd->bh | linear 0; linear 1", {{3, 10}, {3, 2}}},
      {"(ab)c->(cb)a | linear 0", {{12, 5}}, {{'a', 4}}},
  };
  return *all;
}

TEST(Rule, GradientOfAContraction) {
  std::mt19937 gen(5);
  auto everywhere = [](const Point&) { return true; };
  for (const Contraction& c : contractions()) {
    BoundRule r(Rule(c.text), c.shapes, "test", c.extra);
    std::vector<Numbers> in;
    for (const Shape& s : c.shapes) in.push_back(numbers(numel(s), gen));
    Numbers cotangent = numbers(numel(r.output_shape(0)), gen);
    for (size_t i = 0; i < in.size(); ++i) {
      Rule g = r.rule().gradient(static_cast<int>(i));
      EXPECT_EQ(Rule(g.to_string()).to_string(), g.to_string());
      std::vector<Numbers> operands = in;
      std::vector<Shape> shapes = c.shapes;
      operands[i] = cotangent;
      shapes[i] = r.output_shape(0);
      std::vector<std::pair<char, int64_t>> sizes;
      for (size_t f = 0; f < r.rule().factors().size(); ++f)
        sizes.push_back(
            {r.rule().factors()[f].letter, r.size(static_cast<int>(f))});
      BoundRule bound(g, shapes, "test", sizes);
      ASSERT_EQ(bound.output_shape(0), c.shapes[i]) << g.to_string();
      Numbers got = contraction(bound, operands, everywhere);
      // The contraction is linear in each operand: its change when one element
      // grows by 1 is the derivative.
      for (size_t e = 0; e < in[i].size(); ++e) {
        std::vector<Numbers> unit = in;
        std::fill(unit[i].begin(), unit[i].end(), 0);
        unit[i][e] = 1;
        Numbers change = contraction(r, unit, everywhere);
        int64_t want = 0;
        for (size_t o = 0; o < change.size(); ++o)
          want += change[o] * cotangent[o];
        ASSERT_EQ(got[e], want) << g.to_string() << " element " << e;
      }
    }
  }
  EXPECT_EQ(Rule("mk,kn->mn").gradient(0).to_string(),
            "mn,kn->mk | linear 0; linear 1");
  EXPECT_EQ(Rule("mk,kn->mn").gradient(1).to_string(),
            "mk,mn->kn | linear 0; linear 1");
  EXPECT_EQ(Rule("mn->m").gradient(0).to_string(), "m->mn | linear 0");
  // It has notes of its own, and none of the rule's.
  EXPECT_EQ(
      Rule("mk,kn->mn | linear 0; linear 1; up 0").gradient(0).to_string(),
      "mn,kn->mk | linear 0; linear 1");
  EXPECT_NE(error_of([] { Rule("m->m,m").gradient(0); }), "no error");
}

// The part of a factor that a rank has, by the definition of Split alone.
Interval part(const Split& s, const Mesh& mesh, int64_t n, const Coord& c) {
  int64_t i = 0, p = 1, g = s.granule();
  for (int a : s.axes()) {
    i = i * mesh.axis_size(a) + c[a];
    p *= mesh.axis_size(a);
  }
  return {i * (n / g) / p * g, (i + 1) * (n / g) / p * g};
}

// Random assignments, including orders of axes and granules that enumerate()
// does not make. The region of every input and output holds exactly the
// elements of the factors' parts. The local contractions, combined over the
// partial axes, are the whole one.
TEST(BoundRule, LayoutsAgainstBruteForce) {
  std::mt19937 gen(11);
  auto below = [&](size_t n) { return static_cast<size_t>(gen() % n); };
  const char* meshes[] = {"2", "3", "2x2", "2x3", "3x2", "2x2x2"};
  for (int trial = 0; trial < 3000; ++trial) {
    const Contraction& c = contractions()[below(contractions().size())];
    Mesh mesh = Mesh::parse(meshes[below(6)]);
    BoundRule r(Rule(c.text), c.shapes, "test", c.extra);
    size_t factors = r.rule().factors().size();
    std::vector<std::vector<int>> axes(factors);
    Assignment a;
    std::vector<int> order;
    for (int x = 0; x < mesh.num_axes(); ++x) order.push_back(x);
    std::shuffle(order.begin(), order.end(), gen);
    for (int axis : order) {
      size_t k = below(factors + r.rule().notes().size() + 1);
      if (k < factors)
        axes[k].push_back(axis);
      else if (k < factors + r.rule().notes().size())
        a.passes.push_back(
            {axis, static_cast<int>(k - factors), ReduceOp::kSum});
    }
    Point sizes;
    for (size_t f = 0; f < factors; ++f) {
      int64_t n = r.size(static_cast<int>(f));
      sizes.push_back(n);
      int64_t granule = n > 0 && n % 2 == 0 && below(3) == 0 ? 2 : 1;
      a.dims.push_back(Dim(n, Split::over(axes[f], granule)));
    }
    std::string what = r.rule().to_string() + " on " + mesh.to_string() + ": " +
                       r.to_string(a, mesh);

    std::vector<Numbers> whole, in;
    for (const Shape& s : c.shapes) whole.push_back(numbers(numel(s), gen));
    AxisMask partial = 0;
    for (const auto& p : a.passes) partial |= AxisMask{1} << p.axis;
    for (size_t f = 0; f < factors; ++f)
      if (r.rule().factors()[f].contracted)
        partial |= a.dims[f].canonical(mesh).axes();
    Layout out = r.output_layout(a, mesh, 0);
    ASSERT_EQ(out.partial_axes(), partial) << what;
    Numbers sum(static_cast<size_t>(numel(r.output_shape(0))), 0);
    for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
      Coord at = mesh.coordinate(rank);
      auto here = [&](const Point& p) {
        for (size_t f = 0; f < factors; ++f) {
          Interval x = part(a.dims[f].split(), mesh, sizes[f], at);
          if (p[f] < x.lo || p[f] >= x.hi) return false;
        }
        return true;
      };
      // Regions as sets of offsets.
      auto check_region = [&](const Layout& l, const Rule::Term& term) {
        std::vector<int> want, got;
        Numbers has(static_cast<size_t>(numel(l.shape())), 0);
        Point only;  // the factors that the term lacks do not matter
        for (size_t f = 0; f < factors; ++f) {
          bool in_term = false;
          for (const auto& d : term)
            in_term |=
                std::find(d.begin(), d.end(), static_cast<int>(f)) != d.end();
          only.push_back(in_term ? sizes[f] : 1);
        }
        each_point(only, [&](const Point& p) {
          for (size_t f = 0; f < factors; ++f) {
            Interval x = part(a.dims[f].split(), mesh, sizes[f], at);
            if (only[f] == sizes[f] && (p[f] < x.lo || p[f] >= x.hi)) {
              bool in_term = false;
              for (const auto& d : term)
                in_term |= std::find(d.begin(), d.end(), static_cast<int>(f)) !=
                           d.end();
              if (in_term) return;
            }
          }
          has[offset(term, p, sizes)] = 1;
        });
        Numbers region(has.size(), 0);
        Region boxes = l.region(mesh, at);
        Point shape;
        for (int64_t n : l.shape()) shape.push_back(n);
        size_t i = 0;
        each_point(shape, [&](const Point& p) {
          bool inside = true;
          for (size_t d = 0; d < p.size(); ++d) {
            bool found = false;
            for (const Interval& x : boxes[d])
              found |= p[d] >= x.lo && p[d] < x.hi;
            inside &= found;
          }
          region[i++] = inside;
        });
        ASSERT_EQ(region, has) << what;
      };
      for (size_t i = 0; i < whole.size(); ++i) {
        Layout l = r.input_layout(a, mesh, static_cast<int>(i));
        ASSERT_NO_FATAL_FAILURE(check_region(l, r.rule().inputs()[i]));
      }
      ASSERT_NO_FATAL_FAILURE(check_region(out, r.rule().outputs()[0]));
      // The parts of a partial input are the whole times factors that add up to
      // 1.
      in = whole;
      bool owner = true;
      for (int axis = 0; axis < mesh.num_axes(); ++axis) {
        if (!(partial >> axis & 1) && !(out.split_axes() >> axis & 1))
          owner &= at[axis] == 0;  // the same on all: count it once
        for (const auto& p : a.passes) {
          if (p.axis != axis) continue;
          const int64_t two[] = {3, -2}, three[] = {3, -4, 2};
          int64_t f =
              mesh.axis_size(axis) == 2 ? two[at[axis]] : three[at[axis]];
          int input = r.rule().notes()[static_cast<size_t>(p.note)].inputs[0];
          for (int64_t& x : in[static_cast<size_t>(input)]) x *= f;
        }
      }
      if (!owner) continue;
      Numbers local = contraction(r, in, here);
      for (size_t o = 0; o < sum.size(); ++o) sum[o] += local[o];
    }
    ASSERT_EQ(sum, contraction(r, whole, [](const Point&) { return true; }))
        << what;
  }
}

TEST(BoundRule, OutputsThatLackAnothersFactorArePartialToo) {
  Mesh mesh = Mesh::parse("2x2");
  BoundRule r(Rule("mn->mn,m | n:max"), {{4, 6}}, "test");
  Assignment a{{Dim(4, Split::over({0})), Dim(6, Split::over({1}))}, {}};
  EXPECT_EQ(r.output_layout(a, mesh, 0).to_string(mesh), "S0,S1");
  EXPECT_EQ(r.output_layout(a, mesh, 1).to_string(mesh), "S0,P(max)");
  BoundRule inside(Rule("mn~->mn,m"), {{4, 6}}, "test");
  EXPECT_EQ(inside.output_layout(a, mesh, 1).to_string(mesh), "S0,R");
  // Two contracted factors on axes in any order: one list in mesh order.
  BoundRule two(Rule("mn->"), {{4, 6}}, "test");
  a = {{Dim(4, Split::over({1})), Dim(6, Split::over({0}))}, {}};
  EXPECT_EQ(two.output_layout(a, mesh, 0).to_string(mesh), "P,P");
}

TEST(BoundRule, TreesHaveOneOwnerWherePartsAreCombined) {
  Mesh mesh = Mesh::parse("2");
  // Both ranks have the first two indices, and half of the others each.
  const Dim shared = Dim::concat({Dim(2), Dim(4, Split::over({0}))});
  const Dim owned =
      Dim::concat({Dim(2, Split::over({0})), Dim(4, Split::over({0}))});
  auto legal = [&](const char* rule, const Dim& d) {
    BoundRule r(Rule(rule), {{6, 3}}, "test");
    return r.legal({{d, Dim(3)}, {}}, mesh).dims[0];
  };
  EXPECT_EQ(legal("mn->mn", shared), shared);  // computed twice
  EXPECT_EQ(legal("mn->n", shared), owned);
  EXPECT_EQ(legal("mn->mn,n", shared), owned);
  EXPECT_EQ(legal("m~n->mn", shared), owned);
  EXPECT_EQ(legal("mn->n", owned), owned);
  EXPECT_EQ(legal("m^n->mn", owned), Dim(6, Split::over({0})));
  // In an operator that combines parts, copies that lie alike are computed
  // twice; other copies get one owner.
  EXPECT_EQ(legal("mn->m", shared), shared);
  const Dim uneven = Dim::concat({Dim(1, Split::over({0})), Dim(5)});
  EXPECT_EQ(legal("mn->mn", uneven), uneven);
  EXPECT_EQ(legal("mn->m", uneven), partitioned(uneven, mesh));
  EXPECT_EQ(legal("mn~->mn", uneven), partitioned(uneven, mesh));
  // The sum of a tree over its axes.
  BoundRule sum(Rule("mn->n"), {{6, 3}}, "test");
  Assignment a = sum.legal({{shared, Dim(3)}, {}}, mesh);
  EXPECT_EQ(sum.input_layout(a, mesh, 0).dims[0], owned.canonical(mesh));
  EXPECT_EQ(sum.output_layout(a, mesh, 0).to_string(mesh), "P");
}

TEST(Rule, StrategiesOfOneAxis) {
  EXPECT_EQ(strategies(Rule("mk,kn->mn | linear 0; linear 1")),
            "R,R->R\n"
            "m: S0,R->S0\n"
            "k: S1,S0->P\n"
            "n: R,S1->S1\n"
            "P,R->P\n"
            "P(avg),R->P(avg)\n"
            "R,P->P\n"
            "R,P(avg)->P(avg)\n");
  EXPECT_EQ(strategies(Rule("m,m->m | linear 0,1")),
            "R,R->R\n"
            "m: S0,S0->S0\n"
            "P,P->P\n"
            "P(avg),P(avg)->P(avg)\n");
  EXPECT_EQ(strategies(Rule("m1,mn->mn | max 0,1")),
            "R,R->R\n"
            "m: S0,S0->S0\n"
            "n: R,S1->S1\n"
            "P(max),P(max)->P(max)\n");
  EXPECT_EQ(strategies(Rule("m->m | down 0; affine 0")),
            "R->R\n"
            "m: S0->S0\n"
            "P(max)->P(min)\n"
            "P(min)->P(max)\n"
            "P(avg)->P(avg)\n");
  EXPECT_EQ(strategies(Rule("mn->m | max 0; n:max")),
            "R->R\n"
            "m: S0->S0\n"
            "n: S1->P(max)\n"
            "P(max)->P(max)\n");
  EXPECT_EQ(strategies(Rule("mn~,k!->mn,m")),
            "R,R->R,R\n"
            "m: S0,R->S0,S0\n"
            "n: S1,R->S1,R\n");
  EXPECT_EQ(strategies(Rule("bshd,btgd->bshd | link h g")),
            "R,R->R\n"
            "b: S0,S0->S0\n"
            "s: S1,R->S1\n"
            "h: S2,R->S2\n"
            "hg: S2,S2->S2\n"
            "d: S3,S3->S3\n"
            "t: R,S1->P\n");
  EXPECT_EQ(strategies(Rule("b(hd)->bhd")),
            "R->R\n"
            "b: S0->S0\n"
            "h: S1->S1\n"
            "d: S1(4 a=4:a)->S2\n");
  EXPECT_EQ(strategies(Rule("->")), "R->R\n");
}

}  // namespace
}  // namespace dtensor
