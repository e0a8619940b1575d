// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using enum ReduceOp;

const Mesh& two() {
  static const Mesh m = Mesh::parse("tp=2");
  return m;
}
const Mesh& grid() {
  static const Mesh m = Mesh::parse("a=2,b=2,c=3,one=1");
  return m;
}
constexpr int kA = 0, kB = 1, kC = 2, kOne = 3;

Coord first(int v) {
  Coord c;
  c[0] = v;
  return c;
}

IntervalList list_of(const Dim& d, const Mesh& m, const Coord& c) {
  IntervalList l;
  d.intervals(m, c, l);
  return l;
}

Layout layout(std::vector<Dim> dims, std::vector<Partial> partials = {}) {
  return Layout{std::move(dims), std::move(partials)};
}

Dim leaf(int64_t n, std::vector<int> axes, int64_t granule = 1) {
  return Dim(n, Split::over(axes, granule));
}

TEST(DimTest, Interleaved) {
  Dim d = Dim::product({Dim(2), leaf(4, {0})});
  EXPECT_EQ(d.size(), 8);
  EXPECT_EQ(d.axes(), 1u);
  EXPECT_FALSE(d.whole());
  EXPECT_EQ(list_of(d, two(), first(0)), (IntervalList{{0, 2}, {4, 6}}));
  EXPECT_EQ(list_of(d, two(), first(1)), (IntervalList{{2, 4}, {6, 8}}));
}

TEST(DimTest, GroupedQueries) {
  // q has 8 heads of 4 numbers, k and v have 2 heads each.
  Dim d = Dim::concat({leaf(32, {0}, 4), leaf(8, {0}, 4), leaf(8, {0}, 4)});
  EXPECT_EQ(d.size(), 48);
  EXPECT_EQ(list_of(d, two(), first(1)),
            (IntervalList{{16, 32}, {36, 40}, {44, 48}}));
  EXPECT_EQ(d.local_size(two(), first(1)), 24);
  EXPECT_EQ(d.largest(two()), 24);
  // The second rank has all of the first segment, and half of each other one.
  Dim touch = Dim::concat(
      {Dim(4, Split::at({0}, {0, 0, 4}, two())), leaf(4, {0}), leaf(4, {0})});
  EXPECT_EQ(list_of(touch, two(), first(1)),
            (IntervalList{{0, 4}, {6, 8}, {10, 12}}));
}

TEST(DimTest, DefaultIsEmpty) {
  Dim d;
  EXPECT_EQ(d.size(), 0);
  EXPECT_EQ(d.kind(), Dim::Kind::kLeaf);
  EXPECT_EQ(list_of(d, two(), {}), IntervalList{});
  EXPECT_EQ(Dim::product({}).size(), 1);
  EXPECT_EQ(Dim::concat({}).size(), 0);
  EXPECT_EQ(Dim::product({}).canonical(two()), Dim(1));
  EXPECT_EQ(Dim::concat({}).canonical(two()), Dim(0));
}

TEST(DimCanonicalTest, SimplerTrees) {
  auto canonical = [](const Dim& d) { return d.canonical(grid()); };
  Dim a4 = leaf(4, {kA}), a6 = leaf(6, {kA});
  // Whole trees are one whole leaf.
  EXPECT_EQ(canonical(Dim::product({Dim(2), Dim(3), Dim(4)})), Dim(24));
  EXPECT_EQ(canonical(Dim::concat({Dim(2), Dim(3)})), Dim(5));
  EXPECT_EQ(canonical(Dim::product({Dim(2), leaf(3, {kOne})})), Dim(6));
  // Sub-dimensions of size 1 and empty segments disappear.
  EXPECT_EQ(canonical(Dim::product({Dim(1), a4, Dim(1)})), a4);
  EXPECT_EQ(canonical(Dim::concat({Dim(0), a4, Dim(0)})), a4);
  // A split outer part times a whole one has a granule, or listed boundaries.
  EXPECT_EQ(canonical(Dim::product({leaf(3, {kA}), Dim(4)})),
            leaf(12, {kA}, 4));
  EXPECT_EQ(canonical(Dim::product({a4, Dim(4)})), leaf(16, {kA}));
  EXPECT_EQ(canonical(Dim::product({leaf(6, {kA}, 2), Dim(4)})),
            leaf(24, {kA}, 8));
  EXPECT_EQ(canonical(Dim::product(
                {Dim(5, Split::at({kA}, {0, 1, 5}, grid())), Dim(2)})),
            Dim(10, Split::at({kA}, {0, 2, 10}, grid())));
  // With one outer index for each, [2, 4] over (a, b) is 8 over both axes.
  EXPECT_EQ(canonical(Dim::product({leaf(2, {kA}), leaf(4, {kB})})),
            leaf(8, {kA, kB}));
  // With two outer indices for each, it is not a leaf.
  EXPECT_EQ(canonical(Dim::product({a4, leaf(4, {kB})})).kind(),
            Dim::Kind::kProduct);
  // Nested products become one product, nested concats one concat.
  EXPECT_EQ(canonical(Dim::product({Dim(2), Dim::product({Dim(3), a4})})),
            Dim::product({Dim(6), a4}));
  EXPECT_EQ(canonical(Dim::concat({Dim::concat({a4, a6}), Dim(2), Dim(1)})),
            Dim::concat({a4, a6, Dim(3)}));
  // h|h is the product (2 h), however it is written.
  EXPECT_EQ(canonical(Dim::concat({a6, a6, a6})), Dim::product({Dim(3), a6}));
  EXPECT_EQ(canonical(Dim::concat({Dim::product({Dim(2), a6}), a6})),
            Dim::product({Dim(3), a6}));
  // Two segments of which the second continues the first one's parts are a
  // leaf.
  Dim head(4, Split::at({kA}, {0, 3, 4}, grid()));
  Dim tail(2, Split::at({kA}, {0, 0, 2}, grid()));
  EXPECT_EQ(canonical(Dim::concat({head, tail})), a6);
  EXPECT_EQ(canonical(Dim::concat({tail, head})).kind(), Dim::Kind::kConcat);
  // A concat of heads times their size is the concat of the products.
  EXPECT_EQ(canonical(Dim::product({Dim::concat({a6, leaf(2, {kA})}), Dim(8)})),
            Dim::concat({leaf(48, {kA}), leaf(16, {kA})}));
  Dim c3 = leaf(3, {kC});
  EXPECT_EQ(
      canonical(Dim::product({Dim::concat({a6, leaf(2, {kA})}), Dim(8), c3})),
      Dim::product({Dim::concat({leaf(48, {kA}), leaf(16, {kA})}), c3}));
}

// Trees under which every rank holds the same have one canonical form.
TEST(DimCanonicalTest, OneTreeForOneLayout) {
  auto same = [](const Dim& a, const Dim& b) {
    EXPECT_EQ(a.canonical(grid()), b.canonical(grid()));
    return a.canonical(grid());
  };
  Dim a4 = leaf(4, {kA}), a6 = leaf(6, {kA}), c3 = leaf(3, {kC});
  // A repeated run of segments is recognized as a product,
  EXPECT_EQ(same(Dim::concat({a4, Dim(3), a4, Dim(3)}),
                 Dim::product({Dim(2), Dim::concat({a4, Dim(3)})})),
            Dim::product({Dim(2), Dim::concat({a4, Dim(3)})}));
  // also if the product is a segment itself,
  EXPECT_EQ(
      same(Dim::concat({a4, c3, a4, c3, a6}),
           Dim::concat({Dim::product({Dim(2), Dim::concat({a4, c3})}), a6})),
      Dim::concat({Dim::product({Dim(2), Dim::concat({a4, c3})}), a6}));
  // and if its outer part is split.
  Dim low(3, Split::at({kA}, {0, 3, 3}, grid()));
  Dim high(3, Split::at({kA}, {0, 0, 3}, grid()));
  Dim lows = Dim(6, Split::at({kA, kC}, {0, 2, 4, 6, 6, 6, 6}, grid()));
  Dim highs = Dim(6, Split::at({kA, kC}, {0, 0, 0, 0, 2, 4, 6}, grid()));
  EXPECT_EQ(same(Dim::concat({lows, lows, highs, highs}),
                 Dim::product({a4, leaf(6, {kC})})),
            Dim::product({a4, leaf(6, {kC})}));
  EXPECT_EQ(same(Dim::concat({low, high}), a6), a6);
  // In a split of one index, the last part has it, whatever the axes' order.
  EXPECT_EQ(same(leaf(1, {kB, kA}), leaf(1, {kA, kB})), leaf(1, {kA, kB}));
  EXPECT_NE(leaf(2, {kB, kA}).canonical(grid()),
            leaf(2, {kA, kB}).canonical(grid()));
  // With fewer indices than parts, the split is balanced, without a list of
  // boundaries.
  std::vector<int> axes = {kA, kB, kC};
  do {
    for (int64_t n = 1; n < 12; ++n)
      for (int64_t granule : {1, 2, 3}) {
        if (n % granule > 0) continue;
        EXPECT_FALSE(leaf(n, axes, granule).canonical(grid()).split().points());
      }
  } while (std::next_permutation(axes.begin(), axes.end()));
  // More segments than are searched for products.
  std::vector<Dim> many = {a6};
  for (int i = 0; i < 100; ++i) many.push_back(a4);
  EXPECT_EQ(
      same(Dim::concat(many), Dim::concat({a6, Dim::product({Dim(100), a4})})),
      Dim::concat({a6, Dim::product({Dim(100), a4})}));
  // No element.
  EXPECT_EQ(same(Dim::product({a4, Dim(0)}), Dim(0)), Dim(0));
  EXPECT_EQ(leaf(0, {kA}).canonical(grid()), leaf(0, {kA}));
}

TEST(DimCanonicalTest, HugeSizes) {
  int64_t n = int64_t{1} << 60;
  Dim d = Dim::product({Dim(n / 4), leaf(4, {kA})});
  EXPECT_EQ(d.canonical(grid()), d);
  EXPECT_EQ(
      d.unflatten(grid(), {n / 8, 8}),
      (std::vector<Dim>{Dim(n / 8), Dim::product({Dim(2), leaf(4, {kA})})}));
  Dim odd = Dim::product({Dim(n / 8), leaf(6, {kA})});
  EXPECT_EQ(odd.unflatten(grid(), {3, n / 4}), std::nullopt);
}

TEST(DimCanonicalTest, Hash) {
  Dim a4 = leaf(4, {kA});
  std::vector<Dim> different = {Dim(8),
                                Dim(4),
                                a4,
                                leaf(4, {kB}),
                                Dim::product({Dim(2), a4}),
                                Dim::concat({Dim(2), a4}),
                                Dim::concat({a4, Dim(2)}),
                                Dim::product({a4, Dim(2)})};
  std::set<uint64_t> hashes;
  for (const Dim& d : different) hashes.insert(d.hash());
  EXPECT_EQ(hashes.size(), different.size());
  EXPECT_EQ(Dim::concat({a4, a4}).canonical(grid()).hash(),
            Dim::product({Dim(2), a4}).canonical(grid()).hash());
}

TEST(DimTest, Slice) {
  auto slice = [](const Dim& d, int64_t lo, int64_t n) {
    return *d.slice(two(), lo, n);
  };
  Dim d = leaf(10, {0});
  EXPECT_EQ(slice(d, 0, 10), d);
  EXPECT_EQ(slice(d, 3, 4), leaf(4, {0}));
  EXPECT_EQ(slice(d, 4, 4), Dim(4, Split::at({0}, {0, 1, 4}, two())));
  EXPECT_EQ(slice(d, 6, 4), leaf(4, {0}, 4));  // all of it is the second's
  EXPECT_EQ(slice(d, 6, 0).size(), 0);
  EXPECT_EQ(slice(Dim(10), 2, 3), Dim(3));
  // The k of q|k|v.
  Dim qkv = Dim::concat({leaf(8, {0}), leaf(4, {0}), Dim(5)});
  EXPECT_EQ(slice(qkv, 8, 4), leaf(4, {0}));
  EXPECT_EQ(slice(qkv, 8, 6), Dim::concat({leaf(4, {0}), Dim(2)}));
  EXPECT_EQ(slice(qkv, 3, 0), Dim(0));
  // Whole outer indices, a part of one, and parts of two.
  Dim three = Dim::product({Dim(3), leaf(4, {0})});
  EXPECT_EQ(slice(three, 4, 4), leaf(4, {0}));
  EXPECT_EQ(slice(three, 4, 8), Dim::product({Dim(2), leaf(4, {0})}));
  EXPECT_EQ(slice(three, 5, 2), leaf(2, {0}));
  EXPECT_EQ(slice(three, 3, 5), Dim::concat({leaf(1, {0}), leaf(4, {0})}));
}

TEST(DimTest, Unflatten) {
  using Dims = std::vector<Dim>;
  auto cut = [](const Dim& d, std::vector<int64_t> sizes) {
    return d.unflatten(grid(), sizes);
  };
  Dim c6 = leaf(6, {kC});
  EXPECT_EQ(cut(c6, {3, 2}), (Dims{leaf(3, {kC}), Dim(2)}));
  EXPECT_EQ(cut(c6, {1, 6, 1}), (Dims{Dim(1), c6, Dim(1)}));
  EXPECT_EQ(cut(c6, {2, 3}), std::nullopt);
  EXPECT_EQ(cut(Dim(6), {2, 3}), (Dims{Dim(2), Dim(3)}));
  EXPECT_EQ(cut(Dim(1), {}), Dims{});
  EXPECT_EQ(cut(leaf(1, {kA}), {}), std::nullopt);
  // The first axis cuts the outer indices, the second each of them.
  EXPECT_EQ(cut(leaf(8, {kA, kB}), {2, 4}),
            (Dims{leaf(2, {kA}), leaf(4, {kB})}));
  EXPECT_EQ(cut(leaf(8, {kA, kB}), {4, 2}), (Dims{leaf(4, {kA, kB}), Dim(2)}));
  // Heads of one size out of q|k|v.
  EXPECT_EQ(cut(Dim::concat({leaf(48, {kA}), leaf(16, {kA})}), {8, 8}),
            (Dims{Dim::concat({leaf(6, {kA}), leaf(2, {kA})}), Dim(8)}));
  EXPECT_EQ(cut(Dim::concat({leaf(48, {kA}), leaf(16, {kA})}), {2, 32}),
            std::nullopt);
  // No element.
  EXPECT_EQ(cut(Dim(0), {0, 4}), (Dims{Dim(0), Dim(4)}));
  EXPECT_EQ(cut(Dim(0), {4, 0}), (Dims{Dim(4), Dim(0)}));
}

// Segments need not begin at multiples of the inner sizes.
TEST(DimTest, UnflattenAcrossSegments) {
  using Dims = std::vector<Dim>;
  Dim a4 = leaf(4, {kA});
  // The indices' owners are 0 0 1 1, then 1 1, then 1, then 1.
  Dim d = Dim::concat({a4, leaf(2, {kA}, 2), leaf(1, {kA}), leaf(1, {kA})});
  EXPECT_EQ(d.unflatten(grid(), {4, 2}),
            (Dims{Dim(4, Split::at({kA}, {0, 1, 4}, grid())), Dim(2)}));
  // The owners are . . . 0 0 1 1 twice ('.' is every rank): two equal rows.
  Dim s = Dim::concat({Dim(3), a4, Dim(3), a4});
  EXPECT_EQ(s.unflatten(grid(), {2, 7}),
            (Dims{Dim(2), Dim::concat({Dim(3), a4})}));
  // One axis splits the rows, another the columns; segments have odd sizes.
  Dim up(3, Split::at({kA, kC}, {0, 1, 2, 3, 3, 3, 3}, grid()));
  Dim down(3, Split::at({kA, kC}, {0, 0, 0, 0, 1, 2, 3}, grid()));
  EXPECT_EQ(Dim::concat({up, up, down}).unflatten(grid(), {3, 3}),
            (Dims{Dim(3, Split::at({kA}, {0, 2, 3}, grid())), leaf(3, {kC})}));
}

TEST(DimErrorTest, Construction) {
  // The boundaries are those of a balanced split, but of another size.
  EXPECT_EQ(error_of([] {
              Dim(7, Split::at({0}, {0, 2, 5}, two()));
            }),
            "[split] the boundaries 0|2|5 end at 5, but the dimension has "
            "size 7; write boundaries from 0 to 7");
  int64_t n = int64_t{1} << 40;
  EXPECT_EQ(error_of([&] {
              Dim::product({Dim(n), Dim(n)});
            }),
            "[layout] a product of sizes 1099511627776, 1099511627776 has more "
            "indices than 64 bits can count; write smaller sizes");
  int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(error_of([&] {
              Dim::concat({Dim(most), Dim(1)});
            }),
            "[layout] segments of sizes 9223372036854775807, 1 have more "
            "indices than 64 bits can count; write smaller sizes");
  EXPECT_EQ(error_of([&] {
              Dim b = leaf(4, {kB});
              (void)Dim::product({b, b}).canonical(grid());
            }),
            "[layout] two parts of one dimension are split over b of mesh "
            "a=2,b=2,c=3,one=1; split only one of them over an axis");
}

// Granules are whole but for the last, which has what is left.
TEST(DimTest, GranulesThatDoNotDivideTheSize) {
  const auto starts = [](const Dim& d, int64_t parts) {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < parts; ++i)
      list.push_back(d.split().part(grid(), d.size(), i).lo);
    return list;
  };
  for (bool canonical : {false, true}) {
    Dim d = leaf(18, {kA, kB}, 4), e = leaf(7, {kA, kB}, 3);
    if (canonical) d = d.canonical(grid()), e = e.canonical(grid());
    EXPECT_EQ(starts(d, 4), (std::vector<int64_t>{0, 4, 8, 12}));
    EXPECT_EQ(starts(e, 4), (std::vector<int64_t>{0, 0, 3, 6}));
    EXPECT_EQ(e.largest(grid()), 3);
  }
  EXPECT_EQ(leaf(18, {kA, kB}, 4).largest(grid()), 6);
  EXPECT_EQ(
      leaf(3, {kA}, 4).canonical(grid()).split().part(grid(), 3, 1).size(), 3);
  // Equal boundaries are one split.
  EXPECT_EQ(leaf(7, {kA}, 2).canonical(grid()),
            Dim(7, Split::at({kA}, {0, 4, 7}, grid())).canonical(grid()));
}

TEST(ReduceOpTest, NamesAndComponents) {
  const char* names[] = {"sum", "avg", "max",  "min",  "prod",
                         "any", "all", "mean", "exact"};
  for (int i = 0; i < 9; ++i) {
    auto op = static_cast<ReduceOp>(i);
    EXPECT_EQ(name(op), names[i]);
    EXPECT_EQ(components(op), op == kMean ? 2 : 1);
  }
}

TEST(ReduceOpTest, OnlyTheseCommute) {
  for (int i = 0; i < 9; ++i)
    for (int j = 0; j < 9; ++j) {
      auto a = static_cast<ReduceOp>(i), b = static_cast<ReduceOp>(j);
      bool want = i == j || (i <= 1 && j <= 1);
      EXPECT_EQ(commute(a, b), want) << name(a) << " " << name(b);
    }
}

TEST(LayoutTest, Basics) {
  Layout l = layout({leaf(4, {kA}), Dim(6)}, {{kB, kMax}});
  EXPECT_EQ(l.split_axes(), 0b01u);
  EXPECT_EQ(l.partial_axes(), 0b10u);
  EXPECT_EQ(l.partial_on(kB), kMax);
  EXPECT_EQ(l.partial_on(kA), std::nullopt);
  EXPECT_EQ(l.shape(), (Shape{4, 6}));
  EXPECT_EQ(l.region(grid(), first(1)), (Region{{{2, 4}}, {{0, 6}}}));
  Layout r = Layout::replicated({4, 6});
  EXPECT_EQ(r, layout({Dim(4), Dim(6)}));
  EXPECT_EQ(r.split_axes() | r.partial_axes(), 0u);
  EXPECT_NE(l, r);
}

TEST(LayoutTest, PartialsInOneOrder) {
  auto partials = [](std::vector<Partial> p) {
    return layout({}, std::move(p)).canonical(grid()).partials;
  };
  using List = std::vector<Partial>;
  // Neighbours that commute are put in mesh order.
  EXPECT_EQ(partials({{kC, kSum}, {kA, kAvg}, {kB, kSum}}),
            (List{{kA, kAvg}, {kB, kSum}, {kC, kSum}}));
  EXPECT_EQ(partials({{kB, kMax}, {kA, kMax}}), (List{{kA, kMax}, {kB, kMax}}));
  // Max over b of sums over a is not the sum of maxima.
  EXPECT_EQ(partials({{kB, kMax}, {kA, kSum}}), (List{{kB, kMax}, {kA, kSum}}));
  EXPECT_EQ(partials({{kC, kSum}, {kB, kMax}, {kA, kSum}}),
            (List{{kC, kSum}, {kB, kMax}, {kA, kSum}}));
  // An axis of size 1 combines nothing, but a mean over it is a (sum, count).
  EXPECT_EQ(partials({{kOne, kSum}}), List{});
  EXPECT_EQ(partials({{kOne, kMax}}), List{});
  EXPECT_EQ(partials({{kOne, kMean}}), (List{{kOne, kMean}}));
  // Without it, the partials before and after it are neighbours.
  EXPECT_EQ(partials({{kB, kSum}, {kOne, kMax}, {kA, kSum}}),
            (List{{kA, kSum}, {kB, kSum}}));
}

TEST(LayoutTest, HashTellsLayoutsApart) {
  std::vector<Layout> different = {
      layout({Dim(4), Dim(4)}),
      layout({leaf(4, {kA}), Dim(4)}),
      layout({Dim(4), leaf(4, {kA})}),
      layout({Dim(4), Dim(4)}, {{kA, kSum}}),
      layout({Dim(4), Dim(4)}, {{kA, kMax}}),
      layout({Dim(4), Dim(4)}, {{kB, kSum}}),
      layout({Dim(4), Dim(4)}, {{kA, kSum}, {kB, kMax}}),
      layout({Dim(4), Dim(4)}, {{kB, kMax}, {kA, kSum}})};
  std::set<uint64_t> hashes;
  for (const Layout& l : different) hashes.insert(l.hash());
  EXPECT_EQ(hashes.size(), different.size());
}

TEST(LayoutErrorTest, AnAxisUsedTwice) {
  const std::string want =
      "[layout] a layout uses axis b of mesh a=2,b=2,c=3,one=1 twice; use it "
      "once, to split one dimension or for one partial";
  Dim b4 = leaf(4, {kB}), ba = leaf(4, {kB, kA});
  for (const Layout& l :
       {layout({b4, b4}), layout({b4}, {{kB, kSum}}),
        layout({}, {{kB, kSum}, {kB, kSum}}), layout({Dim::product({b4, b4})}),
        layout({Dim::product({Dim::product({b4, b4}), Dim(2)})}),
        layout({Dim::concat({Dim(2), Dim::product({b4, b4})})}),
        layout({Dim::concat({ba, b4}), b4})})
    EXPECT_EQ(error_of([&] { (void)l.canonical(grid()); }), want);
  // Segments, unlike sub-dimensions, may share axes.
  EXPECT_NO_THROW((void)layout({Dim::concat({b4, ba})}).canonical(grid()));
}

TEST(LayoutErrorTest, NoSuchAxis) {
  EXPECT_EQ(error_of([] { (void)layout({leaf(4, {5})}).canonical(grid()); }),
            "[split] mesh a=2,b=2,c=3,one=1 has no axis 5; write a "
            "number from 0 to 3");
  EXPECT_EQ(error_of([] {
              (void)layout({}, {{5, kSum}}).canonical(grid());
            }),
            "[layout] mesh a=2,b=2,c=3,one=1 has no axis 5; write a "
            "number from 0 to 3");
}

// Views. ---------------------------------------------------------------------

std::string view(const char* text, const Mesh& m, const Shape& from,
                 const Shape& to) {
  auto v = view_layout(parse_layout(text, m, from), m, to);
  return v ? v->to_string(m) : "refused";
}

TEST(ViewTest, KnownCases) {
  Mesh three = Mesh::parse("3"), pair = Mesh::parse("2x2");
  // Rank 1 would hold (0, 2) and (1, 0), which no layout can say.
  EXPECT_EQ(view("S0", three, {6}, {2, 3}), "refused");
  EXPECT_EQ(view("S0", three, {6}, {3, 2}), "S0");
  EXPECT_EQ(view("S1", two(), {12, 8}, {16, 6}), "refused");
  // The interleaved layout.
  EXPECT_EQ(view("S1", two(), {2, 4}, {8}), "[(2 4{tp})]");
  EXPECT_EQ(view("S0", two(), {2, 4}, {8}), "S0");
  EXPECT_EQ(view("S0", three, {4, 2}, {8}), "S0/2");
  EXPECT_EQ(view("S0,S1", pair, {2, 4}, {8}), "S0,S0");
  EXPECT_EQ(view("S0,S0", pair, {8}, {2, 4}), "S0,S1");
  EXPECT_EQ(view("S0,S0", pair, {8}, {4, 2}), "S0,S0");
  EXPECT_EQ(view("S0,S2", pair, {4, 6, 8}, {24, 8}), "S0,S1");
  EXPECT_EQ(view("S0,R", pair, {4, 6}, {1, 4, 1, 6, 1}), "S1,R");
  EXPECT_EQ(view("S1,P(max)", pair, {1, 4, 1, 6}, {4, 6}), "S0,P(max)");
}

TEST(ViewTest, InterleavedAndBack) {
  auto three = Mesh::parse("3");
  auto flat = view_layout(parse_layout("S1", three, {3, 4}), three, {12});
  ASSERT_TRUE(flat);
  EXPECT_EQ(flat->to_string(three), "[(3 4{a0})]");
  auto back = view_layout(*flat, three, {3, 4});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->to_string(three), "S1");
  EXPECT_EQ(local_shape(back->region(three, first(2))), (Shape{3, 2}));
}

TEST(ViewTest, Scalars) {
  EXPECT_EQ(view("R", two(), {1, 1}, {}), "R");
  EXPECT_EQ(view("P", two(), {}, {1, 1}), "P");
  EXPECT_EQ(view("S0", two(), {1}, {}), "refused");
  EXPECT_EQ(view("S0", two(), {1}, {1, 1}), "S1");
}

TEST(ViewTest, NoElement) {
  EXPECT_EQ(view("S0", two(), {0, 4}, {0, 4}), "S0");
  EXPECT_EQ(view("S0", two(), {0, 4}, {2, 0}), "R");
  EXPECT_EQ(view("P", two(), {0, 4}, {2, 0}), "P");
}

TEST(ViewTest, OtherNumberOfElements) {
  EXPECT_EQ(view("S0", two(), {6}, {2, 2}), "refused");
  EXPECT_EQ(view("S0", two(), {6}, {7}), "refused");
  EXPECT_EQ(view("R", two(), {6}, {}), "refused");
  EXPECT_EQ(view("R", two(), {0}, {5}), "refused");
  EXPECT_EQ(view("R", two(), {5}, {0}), "refused");
}

}  // namespace
}  // namespace dtensor
