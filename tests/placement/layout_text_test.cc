// SPDX-License-Identifier: Apache-2.0
// The two text forms of placement/layout.h.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/layout.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using enum ReduceOp;
using Form = Layout::Form;

Layout layout(std::vector<Dim> dims, std::vector<Partial> partials = {}) {
  return Layout{std::move(dims), std::move(partials)};
}

Dim leaf(int64_t n, std::vector<int> axes, int64_t granule = 1) {
  return Dim(n, Split::over(axes, granule));
}

const Mesh& two() {
  static const Mesh m = Mesh::parse("tp=2");
  return m;
}
const Mesh& grid() {
  static const Mesh m = Mesh::parse("w=2,x=2,y=3,z=2");
  return m;
}
constexpr int kW = 0, kX = 1, kY = 2, kZ = 3;

// Per mesh axis. -------------------------------------------------------------

TEST(PerAxisTest, ReadsBack) {
  Mesh m = Mesh::parse("a=2,b=3");
  for (const char* text :
       {"R,R", "S0,R", "R,S1", "S1,S0", "S0,S0", "S1,S1", "P,R", "S0,P",
        "P,P(max)", "P(avg),P(min)", "P(prod),P(any)", "P(all),P(mean)",
        "S0/6,R", "R,S1/2", "S0/2,S0", "S0@0|1|18,R", "S1@0|1|1|2|3|4|4,S1"})
    EXPECT_EQ(parse_layout(text, m, {18, 4}).to_string(m), text);
  Layout l = parse_layout("S0/6,P(max)", m, {18, 4});
  EXPECT_EQ(l, layout({leaf(18, {0}, 6), Dim(4)}, {{1, kMax}}));
}

TEST(PerAxisTest, ReadsToTheCanonicalForm) {
  Mesh m = Mesh::parse("a=2,b=3,one=1");
  auto again = [&](const char* text) {
    return parse_layout(text, m, {18, 4}).to_string(m);
  };
  EXPECT_EQ(again("S0,R,S0"), "S0,R,R");
  EXPECT_EQ(again("S0,R,P"), "S0,R,R");
  EXPECT_EQ(again("S0,R,P(mean)"), "S0,R,P(mean)");
  EXPECT_EQ(again("S0,R,P(sum)"), "S0,R,R");
  EXPECT_EQ(again("S0/3,R,R"), "S0,R,R");
  EXPECT_EQ(again("S0@0|9|18,R,R"), "S0,R,R");
  EXPECT_EQ(again("S0@0|6|18,R,R"), "S0/6,R,R");
  EXPECT_EQ(again("S0,S0/6,R"), "S0/6,S0,R");
  EXPECT_EQ(again(" S0 @ (0 | 6 | 18) ,R\t, P ( max ) "), "S0/6,R,R");
  // A tree that says no more than a leaf.
  EXPECT_EQ(again("S0(h=3 6:h),R,R"), "S0/6,R,R");
}

TEST(PerAxisTest, EveryTextReadsBack) {
  Mesh m = Mesh::parse("a=2,b=3,c=2");
  const char* items[] = {"R", "S0", "S1", "P", "P(max)", "P(avg)", "P(mean)"};
  for (auto x : items)
    for (auto y : items)
      for (auto z : items) {
        std::string text = std::string(x) + "," + y + "," + z;
        Layout l = parse_layout(text, m, {7, 5});
        EXPECT_EQ(l.to_string(m), text);
        EXPECT_EQ(l, l.canonical(m));
        EXPECT_EQ(parse_layout(l.to_string(m, Form::kPerDim), m, {7, 5}), l);
      }
}

TEST(PerAxisTest, Scalars) {
  EXPECT_EQ(parse_layout("P", two(), {}).to_string(two()), "P");
  EXPECT_EQ(parse_layout("R", two(), {}), Layout::replicated({}));
  Mesh none{std::vector<MeshAxis>{}};
  EXPECT_EQ(parse_layout("", none, {3}), Layout::replicated({3}));
  EXPECT_EQ(Layout::replicated({3}).to_string(none), "");
}

TEST(PerAxisTest, Trees) {
  auto read = [](const char* text, int64_t n) {
    Layout l = parse_layout(text, two(), {n});
    EXPECT_EQ(parse_layout(l.to_string(two(), Form::kPerAxis), two(), {n}), l);
    return l.dims[0];
  };
  Dim h4 = leaf(4, {0});
  EXPECT_EQ(read("S0(3 h=4:h)", 12), Dim::product({Dim(3), h4}));
  EXPECT_EQ(read("S0(3 h:h)", 12), Dim::product({Dim(3), h4}));
  EXPECT_EQ(read("S0(3 h=5 d=8:h)", 120),
            Dim::product({Dim(3), leaf(40, {0}, 8)}));
  EXPECT_EQ(read("S0 ( 3 h = 5 d : h )", 120),
            Dim::product({Dim(3), leaf(40, {0}, 8)}));
  EXPECT_EQ(read("S0(q=8|k=4|v=3:q,k)", 15),
            Dim::concat({leaf(8, {0}), h4, Dim(3)}));
  EXPECT_EQ(read("S0(q|k=4|v=3:q,k)", 15),
            Dim::concat({leaf(8, {0}), h4, Dim(3)}));
  EXPECT_EQ(read("S0(2 h=10:h/2)", 20),
            Dim::product({Dim(2), leaf(10, {0}, 2)}));
  EXPECT_EQ(read("S0(q=9|k=4:q@0|3|9,k)", 13),
            Dim::concat({Dim(9, Split::at({0}, {0, 3, 9}, two())), h4})
                .canonical(two()));
  // Grouped queries: q has 5 heads of 8 numbers, k and v have 3 heads each.
  EXPECT_EQ(read("S0(q=(h=5 8)|k=(g=3 8)|v=(g2=3 8):h,g,g2)", 88),
            Dim::concat({leaf(40, {0}, 8), leaf(24, {0}, 8), leaf(24, {0}, 8)})
                .canonical(two()));
  EXPECT_EQ(read("S0(q=(5 d)|k=10:d)", 30),
            Dim::concat({Dim::product({Dim(5), h4}), Dim(10)}));
  // Named parts that one axis, two axes or no axis splits.
  auto of = [](const char* text, int64_t n) {
    Layout l = parse_layout(text, grid(), {n});
    EXPECT_EQ(parse_layout(l.to_string(grid()), grid(), {n}), l) << text;
    return l.dims[0];
  };
  EXPECT_EQ(of("R,S0(3 h=4 d=9:h),S0(:d),R", 108),
            Dim::product({Dim(3), leaf(4, {kX}), leaf(9, {kY})}));
  EXPECT_EQ(of("R,S0(3 h=4 d=9:h),S0(3 h=4 d=9:d),R", 108),
            Dim::product({Dim(3), leaf(4, {kX}), leaf(9, {kY})}));
  EXPECT_EQ(of("R,S0(3 h=4 d:h),S0(3 h=4 d:d),R", 108),
            Dim::product({Dim(3), leaf(4, {kX}), leaf(9, {kY})}));
  EXPECT_EQ(of("R,S0(3 h=8:h),R,S0(:h)", 24),
            Dim::product({Dim(3), leaf(8, {kX, kZ})}));
  EXPECT_EQ(of("S0(q=12|k=6:q,k),S0(:k),S0(:q),R", 18),
            Dim::concat({leaf(12, {kW, kY}), leaf(6, {kW, kX})}));
}

// Per dimension. -------------------------------------------------------------

TEST(PerDimTest, ReadsBack) {
  auto back = [](const char* text, const Shape& shape) {
    Layout l = parse_layout(text, grid(), shape);
    EXPECT_EQ(l.to_string(grid(), Form::kPerDim), text);
    return l;
  };
  Shape s{36, 4, 5};
  EXPECT_EQ(back("[{y,z},{x},{}] P{w:max}", s),
            layout({leaf(36, {kY, kZ}), leaf(4, {kX}), Dim(5)}, {{kW, kMax}}));
  EXPECT_EQ(back("[{z,y,x},{},{}]", s),
            layout({leaf(36, {kZ, kY, kX}), Dim(4), Dim(5)}));
  EXPECT_EQ(back("[{},{},{}]", s), Layout::replicated(s));
  EXPECT_EQ(back("[{},{},{}] P{w}", s).partials,
            (std::vector<Partial>{{kW, kSum}}));
  EXPECT_EQ(back("[{},{},{}] P{w:max} P{z} P{x:max}", s).partials,
            (std::vector<Partial>{{kW, kMax}, {kZ, kSum}, {kX, kMax}}));
  EXPECT_EQ(back("[{y,z}/4,{},{}]", s).dims[0], leaf(36, {kY, kZ}, 4));
  EXPECT_EQ(back("[{y}@0|3|5|36,{},{}]", s).dims[0],
            Dim(36, Split::at({kY}, {0, 3, 5, 36}, grid())));
  EXPECT_EQ(back("[(9{y} 4{x}),{},{}]", s).dims[0],
            Dim::product({leaf(9, {kY}), leaf(4, {kX})}));
  EXPECT_EQ(back("[(8{x}|4{x}|24),{},{}]", s).dims[0],
            Dim::concat({leaf(8, {kX}), leaf(4, {kX}), Dim(24)}));
  EXPECT_EQ(
      back("[(8{x}@(0|3|8)|27{y}@(0|1|1|27)|1),{},{}]", s).dims[0],
      Dim::concat({Dim(8, Split::at({kX}, {0, 3, 8}, grid())),
                   Dim(27, Split::at({kY}, {0, 1, 1, 27}, grid())), Dim(1)}));
  EXPECT_EQ(back("[(2 9{y}@0|1|1|9 2{x}),{},{}]", s).dims[0],
            Dim::product({Dim(2), Dim(9, Split::at({kY}, {0, 1, 1, 9}, grid())),
                          leaf(2, {kX})}));
  EXPECT_EQ(
      back("[((2 9{y}@0|1|1|9)|(3 6{x})),{},{}]", s).dims[0],
      Dim::concat({Dim::product(
                       {Dim(2), Dim(9, Split::at({kY}, {0, 1, 1, 9}, grid()))}),
                   Dim::product({Dim(3), leaf(6, {kX})})}));
  EXPECT_EQ(back("[] P{w:max}", {}).partials,
            (std::vector<Partial>{{kW, kMax}}));
}

TEST(PerDimTest, OtherWordsForTheSame) {
  auto same = [](const char* a, const char* b) {
    Shape s{96, 4};
    EXPECT_EQ(parse_layout(a, grid(), s), parse_layout(b, grid(), s)) << a;
  };
  same("[{y,z},{x}] P{w}", "P,S1,S0,S0");
  same(" [ { y , z } , { x } ]  P { w : sum } ", "P,S1,S0,S0");
  same("[{y},{}] P{w:max,x}", "[{y},{}] P{w:max} P{x}");
  same("[{y},{}]P{w:max}P{x}", "[{y},{}] P{w:max} P{x}");
  same("[{y}/8,{}]", "R,R,S0/8,R");
  same("[{x} @ ( 0 | 3 | 96 ),{}]", "R,S0@0|3|96,R,R");
  same("[(3 4{x} 8),{}]", "R,S0(3 h=4 8:h),R,R");
  same("[(3 h=4{x} d),{}]", "[(3 4{x} 8),{}]");
  same("[(3 h{x} 8),{}]", "[(3 4{x} 8),{}]");
  same("[( 3  4 {x} 8 ),{}]", "[(3 4{x} 8),{}]");
  same("[(q=64{x}|kv=(2 16{x}) ),{}]", "R,S0(q=64|kv=(2 k=16):q,k),R,R");
  same("[(q=(h=2{x} 32)|(16{x}|16)),{}]", "[(64{x}|16{x}|16),{}]");
  same("[(96),{x}]", "R,S1,R,R");
  same("[(96{x}),{}]", "R,S0,R,R");
}

TEST(LayoutTextTest, PrintsTheShorter) {
  Mesh m = Mesh::parse("dp=2,tp=3");
  auto text = [&](const Layout& l) {
    std::string t = l.to_string(m);
    EXPECT_EQ(parse_layout(t, m, l.shape()), l.canonical(m)) << t;
    return t;
  };
  // Layouts without trees: the form per axis, if it can express them.
  EXPECT_EQ(text(layout({leaf(6, {0}), Dim(2)})), "S0,R");
  EXPECT_EQ(text(layout({leaf(6, {1})})), "R,S0");
  EXPECT_EQ(text(layout({leaf(6, {1, 0}), Dim(2)})), "[{tp,dp},{}]");
  EXPECT_EQ(text(layout({leaf(12, {1, 0}, 4), Dim(2)})), "[{tp,dp}/4,{}]");
  EXPECT_EQ(text(layout({Dim(4, Split::at({1, 0}, {0, 1, 1, 1, 1, 1, 4}, m))})),
            "[{tp,dp}@0|1|1|1|1|1|4]");
  EXPECT_EQ(text(layout({Dim(2)}, {{1, kMax}, {0, kSum}})),
            "[{}] P{tp:max} P{dp}");
  EXPECT_EQ(text(layout({}, {{1, kMean}, {0, kSum}})), "[] P{tp:mean} P{dp}");
  // Layouts with trees.
  EXPECT_EQ(
      text(layout({Dim::product({Dim(3), leaf(6, {1})}), Dim(2)}, {{0, kSum}})),
      "P,S0(3 a=6:a)");
  EXPECT_EQ(text(layout({Dim::product({Dim(3), leaf(6, {1, 0})})})),
            "[(3 6{tp,dp})]");
  EXPECT_EQ(text(layout({Dim::concat({leaf(8, {1}, 2), Dim(5)}), Dim(2)})),
            "R,S0(a=8|5:a/2)");
  EXPECT_EQ(text(layout({Dim::concat({leaf(8, {1}), leaf(4, {1}), Dim(5)})})),
            "[(8{tp}|4{tp}|5)]");
  EXPECT_EQ(text(layout({Dim::concat({Dim(3, Split::at({0}, {0, 1, 3}, m)),
                                      Dim(5, Split::at({0}, {0, 5, 5}, m)),
                                      leaf(3, {0, 1})})})),
            "[(3{dp}@(0|1|3)|5{dp}@(0|5|5)|3{dp,tp})]");
}

// Errors. --------------------------------------------------------------------

TEST(LayoutTextErrorTest, PerAxis) {
  Mesh m = Mesh::parse("a=2,b=3");
  auto error = [&](const std::string& text) {
    return error_of([&] { parse_layout(text, m, {18, 4}); });
  };
  EXPECT_EQ(error("S0"),
            "[layout] 'S0' has 1 placement, but mesh a=2,b=3 has 2 axes; "
            "write one placement for each axis");
  EXPECT_EQ(error(" "),
            "[layout] ' ' has 0 placements, but mesh a=2,b=3 has 2 axes; "
            "write one placement for each axis");
  EXPECT_EQ(error("R,R,R"),
            "[layout] 'R,R,R' has 3 placements, but mesh a=2,b=3 has 2 axes; "
            "write one placement for each axis");
  for (const char* item : {"", "r", "R0", "X", "S", "Sx", "S0x", "S 0", "PP",
                           "p", "Shard(0)", "S0/3/3", "S0 S1", "S(3 h:h)"})
    EXPECT_EQ(error(std::string(item) + ",R"),
              "[layout] '" + std::string(item) +
                  "' is not a placement; write R, S<dim>, P or P(max), for "
                  "example S0");
  EXPECT_EQ(error("S0/,R"), "[layout] 'S0/' ends where a number should follow");
  EXPECT_EQ(error("S0/x,R"),
            "[layout] in 'S0/x' there is 'x' where a number should be");
  EXPECT_EQ(error("S0@,R"), "[layout] 'S0@' ends where a number should follow");
  EXPECT_EQ(error("S0@0|x,R"),
            "[layout] in 'S0@0|x' there is 'x' where a number should be");
  EXPECT_EQ(error("S0@0|9|,R"),
            "[layout] 'S0@0|9|' ends where a number should follow");
  EXPECT_EQ(error("P(median),R"),
            "[layout] 'median' is not a reduction; write sum, avg, max, min, "
            "prod, any, all, mean or exact");
  EXPECT_EQ(error("P(),R"),
            "[layout] in 'P()' there is ')' where a reduction (as in P(max) or "
            "P{x:max}) should be");
  EXPECT_EQ(error("S2,R"),
            "[layout] S2 splits a dimension that shape [18, 4] does not have; "
            "write S0 to S1");
  EXPECT_EQ(error("S-1,R"),
            "[layout] S-1 splits a dimension that shape [18, 4] does not have; "
            "write S0 to S1");
  EXPECT_EQ(error("S2(3 6:h),R"),
            "[layout] S2 splits a dimension that shape [18, 4] does not have; "
            "write S0 to S1");
  EXPECT_EQ(error_of([] { parse_layout("S0", two(), {}); }),
            "[layout] 'S0' splits a scalar, which has no dimension; write R or "
            "P");
}

TEST(LayoutTextErrorTest, Brackets) {
  auto error = [&](const std::string& text) {
    return error_of([&] { parse_layout(text, two(), {18}); });
  };
  EXPECT_EQ(error("S0(3 h:h"),
            "[layout] 'S0(3 h:h' has a '(' that is not closed; write ')' where "
            "it ends");
  EXPECT_EQ(error("[{tp}"),
            "[layout] '[{tp}' has a '[' that is not closed; write ']' where it "
            "ends");
  EXPECT_EQ(error("[{tp]"),
            "[layout] '[{tp]' has a ']' that closes nothing; write '[' before "
            "it, or leave it out");
  EXPECT_EQ(error("P)"),
            "[layout] 'P)' has a ')' that closes nothing; write '(' before it, "
            "or leave it out");
}

TEST(LayoutTextErrorTest, Cuts) {
  Mesh m = Mesh::parse("a=2,b=3");
  auto error = [&](const std::string& text) {
    return error_of([&] { parse_layout(text, m, {18, 4}); });
  };
  EXPECT_EQ(error("S0/0,R"),
            "[layout] 'S0/0' has a granule of 0; write one of 1 or more");
  EXPECT_EQ(error("[{a}/-2,{}]"),
            "[layout] '[{a}/-2,{}]' has a granule of -2; write one of 1 or "
            "more");
  EXPECT_EQ(error("S0/2,S0/3"),
            "[layout] 'S0/2' already has a granule or boundaries, but '/' "
            "starts others; write them once, at the first axis");
  EXPECT_EQ(error("S0(2 h=9:h/3),S0(:h@0|1)"),
            "[layout] 'h=9' already has a granule or boundaries, but '@' "
            "starts others; write them once, at the first axis");
  // The boundaries may be those of a balanced split of another size.
  for (const char* points : {"0|1|5", "0|2|5"})
    EXPECT_EQ(error(std::string("S0@") + points + ",R"),
              "[layout] the boundaries of 'S0@" + std::string(points) +
                  "' end at 5, but dimension 0 of [18, 4] has size 18; let "
                  "the last be 18");
  EXPECT_EQ(error("[(2 9{a}@0|1|8),{}]"),
            "[layout] the boundaries of '9' end at 8, but '9' has size 9; let "
            "the last be 9");
  EXPECT_EQ(error("S0@0|19|18,R"),
            "[split] the boundaries 0|19|18 must start at 0 and not decrease");
  EXPECT_EQ(error("[{a}@1|2|18,{}]"),
            "[split] the boundaries 1|2|18 must start at 0 and not decrease");
  EXPECT_EQ(error("S0@0|18,R"),
            "[split] a split into 2 parts needs 3 boundaries, but '0|18' has "
            "2; list 0, the start of each further part, and the size");
  EXPECT_EQ(error("S0@0|99999999999999999999|18,R"),
            "[layout] 99999999999999999999 in 'S0@0|99999999999999999999|18' "
            "does not fit into 64 bits; write a number from 0 to 2^63 - 1");
  EXPECT_EQ(error("[{}@0|18,{}]"),
            "[layout] '[{}@0|18,{}]' has a '@' after empty braces, which split "
            "nothing; write an axis in the braces, as in {x}/64");
  EXPECT_EQ(error("[(9{a}@0|1|9|9{a}),{}]"),
            "[layout] in '[(9{a}@0|1|9|9{a}),{}]' a '{' follows boundaries; "
            "write a comma between two dimensions, and brackets around "
            "boundaries that another segment follows, as in "
            "8{x}@(0|3|8)|4{x}");
}

TEST(LayoutTextErrorTest, Trees) {
  Mesh m = Mesh::parse("a=2,b=3");
  auto error = [&](const std::string& text) {
    return error_of([&] { parse_layout(text, m, {24, 4}); });
  };
  EXPECT_EQ(error("S0(3 h=4 3:h),R"),
            "[layout] the sizes of '3 h=4 3' multiply to 36, but dimension 0 "
            "of [24, 4] has size 24; write sizes whose product is 24");
  EXPECT_EQ(error("[(3 4{a} 3),{}]"),
            "[layout] the sizes of '(3 4{a} 3)' multiply to 36, but dimension "
            "0 of [24, 4] has size 24; write sizes whose product is 24");
  EXPECT_EQ(error("[(8{a}|15),{}]"),
            "[layout] the sizes of '(8{a}|15)' add up to 23, but dimension 0 "
            "of [24, 4] has size 24; write sizes whose sum is 24");
  EXPECT_EQ(error("[(5 h{a}),{}]"),
            "[layout] the sizes of '(5 h{a})' without 'h' multiply to 5, but "
            "dimension 0 of [24, 4] has size 24; write sizes whose product "
            "divides 24");
  EXPECT_EQ(error("[(25|h{a}),{}]"),
            "[layout] the sizes of '(25|h{a})' without 'h' add up to 25, but "
            "dimension 0 of [24, 4] has size 24; write sizes whose sum is at "
            "most 24");
  EXPECT_EQ(error("[(14|q=(3 h{a})),{}]"),
            "[layout] the sizes of 'q=(3 h{a})' without 'h' multiply to 3, but "
            "'q=(3 h{a})' has size 10; write sizes whose product divides 10");
  EXPECT_EQ(error("S0(3 h d:h),R"),
            "[layout] the sizes of h and d in '3 h d' are both unknown; write "
            "h=<size>");
  EXPECT_EQ(error("S0(q=(2 h)|k:h),R"),
            "[layout] the sizes of h and k in 'q=(2 h)|k' are both unknown; "
            "write h=<size>");
  EXPECT_EQ(error("S0(3 h=4 2:d),R"),
            "[layout] '3 h=4 2' has no part named d (it names h); write "
            "d=<size> for the part that is split");
  EXPECT_EQ(error("S0(3 4 2:h),R"),
            "[layout] '3 4 2' has no part named h (it names none); write "
            "h=<size> for the part that is split");
  EXPECT_EQ(error("S0(3 4 2:4),R"),
            "[layout] in 'S0(3 4 2:4)' there is '4)' where the name of a part "
            "should be");
  EXPECT_EQ(error("S0(q=(h=2 4)|16:q),R"),
            "[layout] 'q=(h=2 4)' is a group, which is not split as a whole; "
            "name one of its parts after the ':'");
  EXPECT_EQ(error("[(q=(2 4){a}|16),{}]"),
            "[layout] 'q=(2 4)' is a group; write the axes after one of its "
            "parts");
  EXPECT_EQ(
      error("S0(h=2 h=12:h),R"),
      "[layout] 'h=2 h=12' has two parts named h; give each its own name");
  EXPECT_EQ(error("S0(h=2 12:h,h),R"),
            "[layout] 'S0(h=2 12:h,h)' names h twice; name each part once");
  EXPECT_EQ(error("S0(3 h=8),R"),
            "[layout] in 'S0(3 h=8)' there is ')' where ':' and the name of "
            "the part that is split should be");
  EXPECT_EQ(error("S0(:h),R"),
            "[layout] 'S0(:h)' is the first placement that splits dimension 0, "
            "so it has to say how the dimension is divided; write the sizes of "
            "the parts, as in S0(3 h=4 8:h)");
  EXPECT_EQ(error("S0(3 h=8:h),S0"),
            "[layout] 'S0' does not say which part of '3 h=8' it splits; write "
            "S0(:h) with the name of the part");
  EXPECT_EQ(
      error("S0,S0(3 h=8:h)"),
      "[layout] a placement before 'S0(3 h=8:h)' splits dimension 0 without a "
      "tree; write the tree at the first axis that splits the dimension");
  EXPECT_EQ(error("S0,S0(:h)"),
            "[layout] a placement before 'S0(:h)' splits dimension 0 without a "
            "tree; write the tree at the first axis that splits the dimension");
  EXPECT_EQ(
      error("S0(3 h=8:h),S0(h=8 3:h)"),
      "[layout] '3 h=8' and 'h=8 3' are different trees of dimension 0; write "
      "the first again, or only the part that this axis splits, as in S0(:h)");
  EXPECT_EQ(error("S0(h=2 4|16:h),R"),
            "[layout] 'h=2 4|' mixes | and spaces; put the product in "
            "brackets, as in ((2 4)|8)");
  EXPECT_EQ(error("S0(4|h=2 16:h),R"),
            "[layout] '4|h=2 ' mixes | and spaces; put the product in "
            "brackets, as in ((2 4)|8)");
  EXPECT_EQ(error("S0(2|h=16,h),R"),
            "[layout] in 'S0(2|h=16,h)' there is ',h)' where '|', ':' or ')' "
            "should be");
  EXPECT_EQ(error("S0(h=-2 16:h),R"),
            "[layout] the size -2 in 'h=-2' is negative; write 0 or more");
  EXPECT_EQ(error("S0(h=,16:h),R"),
            "[layout] in 'S0(h=,16:h)' there is ',16:h)' where a size, a name "
            "or '(' should be");
  EXPECT_EQ(error("[(),{}]"),
            "[layout] in '[(),{}]' there is '),{}]' where a size or a name "
            "should be");
  EXPECT_EQ(error("[(3 h=8{a}:h),{}]"),
            "[layout] in '[(3 h=8{a}:h),{}]' there is ':h),{}]' where ')' "
            "should be");
  EXPECT_EQ(error("S0(4611686018427387904 4 h=2:h),R"),
            "[layout] the sizes of '4611686018427387904 4 h=2' multiply to "
            "more than 64 bits can count; write smaller ones");
  EXPECT_EQ(error("[(9223372036854775807|1|h{a}),{}]"),
            "[layout] the sizes of '(9223372036854775807|1|h{a})' add up to "
            "more than 64 bits can count; write smaller ones");
  EXPECT_EQ(error("[(9223372036854775808 4{a}),{}]"),
            "[layout] 9223372036854775808 in '[(9223372036854775808 4{a}),{}]' "
            "does not fit into 64 bits; write a number from 0 to 2^63 - 1");
}

TEST(LayoutTextErrorTest, PerDimension) {
  Mesh m = Mesh::parse("a=2,b=3");
  auto error = [&](const std::string& text) {
    return error_of([&] { parse_layout(text, m, {18, 4}); });
  };
  EXPECT_EQ(error("[{a}]"),
            "[layout] '[{a}]' has 1 dimension, but shape [18, 4] has 2; write "
            "braces for each dimension, {} if it is whole");
  EXPECT_EQ(error("[{a},{},{}]"),
            "[layout] '[{a},{},{}]' has 3 dimensions, but shape [18, 4] has 2; "
            "write braces for each dimension, {} if it is whole");
  EXPECT_EQ(error("[{q},{}]"),
            "[mesh] there is no axis 'q' in mesh a=2,b=3; write one of its "
            "axes, a,b");
  EXPECT_EQ(error("[{a},{}] P{q}"),
            "[mesh] there is no axis 'q' in mesh a=2,b=3; write one of its "
            "axes, a,b");
  EXPECT_EQ(error("[{a,a},{}]"),
            "[layout] '[{a,a},{}]' names axis a twice in one pair of braces; "
            "write it once");
  std::string twice =
      "[layout] a layout uses axis a of mesh a=2,b=3 twice; use it once, to "
      "split one dimension or for one partial";
  EXPECT_EQ(error("[{a},{a}]"), twice);
  EXPECT_EQ(error("[(2{a} 9{a}),{}]"), twice);
  EXPECT_EQ(error("S0(x=2 y=9:x,y),R"), twice);
  EXPECT_EQ(error("[{a},{}] P{a}"), twice);
  EXPECT_EQ(error("[{},{}] P{a} P{a:max}"), twice);
  EXPECT_EQ(error("[{},{}] P{a:median}"),
            "[layout] 'median' is not a reduction; write sum, avg, max, min, "
            "prod, any, all, mean or exact");
  EXPECT_EQ(error("[{},{}] P{}"),
            "[layout] in '[{},{}] P{}' there is '}' where the name of a mesh "
            "axis should be");
  EXPECT_EQ(error("[{},{}] P{a:}"),
            "[layout] in '[{},{}] P{a:}' there is '}' where a reduction (as in "
            "P(max) or P{x:max}) should be");
  EXPECT_EQ(error("[{},{}] R"),
            "[layout] in '[{},{}] R' there is 'R' where P{...} or the end "
            "should be");
  EXPECT_EQ(error("[{},{}],R"),
            "[layout] in '[{},{}],R' there is ',R' where P{...} or the end "
            "should be");
  EXPECT_EQ(error("[a,{}]"),
            "[layout] in '[a,{}]' there is 'a,{}]' where '{' or '(' should be");
  EXPECT_EQ(error("[{a}{b},{}]"),
            "[layout] in '[{a}{b},{}]' there is '{b},{}]' where ',' should be");
  EXPECT_EQ(error("[{a b},{}]"),
            "[layout] in '[{a b},{}]' there is 'b},{}]' where ',' should be");
}

TEST(LayoutTextErrorTest, ShapesThatOverflow) {
  int64_t n = int64_t{1} << 40;
  EXPECT_EQ(error_of([&] {
              parse_layout("S0", two(), {n, n});
            }),
            "[shape] the sizes of [1099511627776, 1099511627776] are too "
            "large, since those that are not 0 multiply to 2^60 or more; write "
            "smaller sizes");
}

}  // namespace
}  // namespace dtensor
