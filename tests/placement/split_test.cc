// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/split.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

using Points = std::vector<int64_t>;

const Mesh& grid() {  // a=2, b=2, c=3, one=1
  static const Mesh m = Mesh::parse("a=2,b=2,c=3,one=1");
  return m;
}
constexpr int kA = 0, kB = 1, kC = 2, kOne = 3;

Points bounds(const Split& s, int64_t n, const Mesh& m = grid()) {
  Points p;
  for (int64_t i = 0; i <= s.parts(m); ++i) p.push_back(s.boundary(m, n, i));
  return p;
}

Points sizes(const Split& s, int64_t n, const Mesh& m = grid()) {
  Points p;
  for (int64_t i = 0; i < s.parts(m); ++i) p.push_back(s.part(m, n, i).size());
  return p;
}

TEST(SplitTest, Whole) {
  Split s;
  EXPECT_TRUE(s.whole());
  EXPECT_EQ(s.num_axes(), 0);
  EXPECT_EQ(s.mask(), 0u);
  EXPECT_EQ(s.parts(grid()), 1);
  EXPECT_EQ(s.range(grid(), 7, {}), (Interval{0, 7}));
  EXPECT_EQ(bounds(s, 7), (Points{0, 7}));
  EXPECT_EQ(s.largest(grid(), 7), 7);
  EXPECT_EQ(Split::over({}), s);
  EXPECT_EQ(Split::over({}, 4), s);
  EXPECT_EQ(Split::at({}, {0, 7}, grid()).canonical(grid(), 7), s);
}

TEST(SplitTest, KnownCases) {
  Mesh four = Mesh::parse("4"), six = Mesh::parse("6");
  EXPECT_EQ(sizes(Split::over({kA, kB}), 5), (Points{1, 1, 1, 2}));
  EXPECT_EQ(sizes(Split::over({kA}), 5), (Points{2, 3}));
  EXPECT_EQ(sizes(Split::over({0}), 5, four), (Points{1, 1, 1, 2}));
  EXPECT_EQ(sizes(Split::over({0}), 2, four), (Points{0, 1, 0, 1}));
  EXPECT_EQ(sizes(Split::over({0}), 0, four), (Points{0, 0, 0, 0}));
  // 32 heads of 64 on 6 ranks.
  EXPECT_EQ(sizes(Split::over({0}, 64), 32 * 64, six),
            (Points{320, 320, 384, 320, 320, 384}));
  EXPECT_EQ(Split::over({0}, 64).largest(six, 32 * 64), 384);
}

TEST(SplitTest, TheFirstAxisIsOutermost) {
  Split s = Split::over({kC, kA});
  EXPECT_EQ(s.parts(grid()), 6);
  EXPECT_EQ(s.axis(0), kC);
  EXPECT_EQ(s.axes(), (std::vector<int>{kC, kA}));
  EXPECT_EQ(s.mask(), 0b101u);
  Coord c;
  c[kC] = 2;
  c[kB] = 1;
  EXPECT_EQ(s.part_of(grid(), c), 4);
  EXPECT_EQ(s.range(grid(), 6, c), (Interval{4, 5}));
}

// The largest size that fits memory, times the number of ranks.
TEST(SplitTest, HugeSizesDoNotOverflow) {
  int64_t n = std::numeric_limits<int64_t>::max() / 8;
  Split s = Split::over({kA, kB, kC});
  EXPECT_EQ(s.boundary(grid(), n, 12), n);
  EXPECT_EQ(s.boundary(grid(), n, 6), n / 2);
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_LE(std::abs(s.part(grid(), n, i).size() - n / 12), 1);
}

TEST(SplitTest, PointsThatABalancedSplitHasBecomeIt) {
  auto canonical = [](std::vector<int> axes, Points p) {
    int64_t n = p.back();
    return Split::at(axes, std::move(p), grid()).canonical(grid(), n);
  };
  EXPECT_EQ(canonical({kA, kB}, {0, 1, 2, 3, 5}), Split::over({kA, kB}));
  EXPECT_EQ(canonical({kA}, {0, 0, 0}), Split::over({kA}));
  // 3 granules of 4: only a split with that granule has these boundaries.
  Split s = canonical({kA}, {0, 4, 12});
  EXPECT_EQ(s, Split::over({kA}, 4));
  EXPECT_EQ(s.granule(), 4);
  EXPECT_EQ(s.points(), nullptr);
  // 4 granules of 4: none is needed.
  EXPECT_EQ(canonical({kA}, {0, 8, 16}).granule(), 1);
}

TEST(SplitTest, PointsThatNothingElseSaysStay) {
  Split s = Split::at({kA, kB}, {0, 2, 2, 5, 5}, grid());
  ASSERT_NE(s.points(), nullptr);
  EXPECT_EQ(*s.points(), (Points{0, 2, 2, 5, 5}));
  EXPECT_EQ(sizes(s, 5), (Points{2, 0, 3, 0}));
  EXPECT_EQ(s.largest(grid(), 5), 3);
  EXPECT_EQ(s, Split::at({kA, kB}, {0, 2, 2, 5, 5}, grid()));
  EXPECT_NE(s, Split::at({kA, kB}, {0, 2, 3, 5, 5}, grid()));
  EXPECT_NE(s, Split::at({kB, kA}, {0, 2, 2, 5, 5}, grid()));
  EXPECT_NE(s, Split::over({kA, kB}));
}

TEST(SplitTest, AxesOfSizeOneGo) {
  EXPECT_EQ(Split::over({kOne, kA}).canonical(grid(), 5), Split::over({kA}));
  EXPECT_EQ(Split::over({kOne}).canonical(grid(), 5), Split());
  EXPECT_EQ(Split::at({kA, kOne}, {0, 1, 5}, grid()).canonical(grid(), 5),
            Split::at({kA}, {0, 1, 5}, grid()));
  EXPECT_EQ(Split::at({kOne}, {0, 5}, grid()).canonical(grid(), 5), Split());
}

TEST(SplitTest, TheGranuleGoesWhereItChangesNothing) {
  EXPECT_EQ(Split::over({kA}, 3).canonical(grid(), 12).granule(), 1);
  EXPECT_EQ(Split::over({kA}, 4).canonical(grid(), 12).granule(), 4);
  EXPECT_EQ(Split::over({kA}, 12).canonical(grid(), 12).granule(), 12);
  EXPECT_EQ(Split::over({kA}, 5).canonical(grid(), 0).granule(), 1);
  EXPECT_EQ(Split::over({kOne}, 5).canonical(grid(), 5).granule(), 1);
}

TEST(SplitTest, PopAndPush) {
  Split ab = Split::over({kA, kB}, 2);
  EXPECT_EQ(ab.popped(grid()), Split::over({kA}, 2));
  EXPECT_EQ(ab.popped(grid()).popped(grid()), Split());
  EXPECT_EQ(ab.popped(grid()).hash(), Split::over({kA}, 2).hash());
  EXPECT_EQ(ab.prefix(grid(), 2), ab);
  EXPECT_EQ(ab.prefix(grid(), 0), Split());
  EXPECT_EQ(Split::over({kA}, 2).pushed(grid(), 10, kB), ab);
  EXPECT_EQ(Split().pushed(grid(), 10, kB), Split::over({kB}));
  // A listed part [lo, hi) is cut at lo + floor(j * (hi - lo) / B).
  Split ragged = Split::at({kA}, {0, 1, 8}, grid());
  EXPECT_EQ(bounds(ragged.pushed(grid(), 8, kC), 8),
            (Points{0, 0, 0, 1, 3, 5, 8}));
  EXPECT_EQ(ragged.pushed(grid(), 8, kC).popped(grid()), ragged);
  // Popping keeps every second boundary. The result may be balanced again.
  Split four = Split::at({kA, kB}, {0, 3, 4, 4, 8}, grid());
  EXPECT_EQ(four.popped(grid()), Split::over({kA}));
  EXPECT_EQ(Split::at({kA, kB}, {0, 3, 3, 3, 8}, grid()).popped(grid()),
            Split::at({kA}, {0, 3, 8}, grid()));
}

TEST(SplitTest, CommonPrefix) {
  Split abc = Split::over({kA, kB, kC}), ab = Split::over({kA, kB});
  EXPECT_EQ(abc.common_prefix(ab, grid(), 7), 2);
  EXPECT_EQ(abc.common_prefix(Split::over({kA, kC}), grid(), 7), 1);
  EXPECT_EQ(abc.common_prefix(Split::over({kB, kA}), grid(), 7), 0);
  EXPECT_EQ(abc.common_prefix(Split(), grid(), 7), 0);
  // The axes are the same; the boundaries are not.
  EXPECT_EQ(ab.common_prefix(Split::over({kA, kB}, 4), grid(), 12), 0);
  EXPECT_EQ(ab.common_prefix(Split::over({kA, kB}, 4), grid(), 16), 2);
  EXPECT_EQ(ab.common_prefix(Split::over({kA, kB}, 4), grid(), 24), 1);
}

TEST(SplitTest, Hash) {
  std::vector<Split> different = {Split(),
                                  Split::over({kA}),
                                  Split::over({kB}),
                                  Split::over({kA, kB}),
                                  Split::over({kB, kA}),
                                  Split::over({kA}, 2),
                                  Split::at({kA}, {0, 1, 5}, grid()),
                                  Split::at({kA}, {0, 4, 5}, grid())};
  std::set<uint64_t> hashes;
  for (const Split& s : different) hashes.insert(s.hash());
  EXPECT_EQ(hashes.size(), different.size());
  EXPECT_EQ(Split::at({kA}, {0, 1, 5}, grid()).hash(),
            Split::at({kA}, {0, 1, 5}, grid()).hash());
}

TEST(SplitErrorTest, Over) {
  EXPECT_EQ(
      error_of([] {
        Split::over({1, 0, 1});
      }),
      "[split] mesh axis 1 splits the same dimension twice; list it once");
  EXPECT_EQ(error_of([] { Split::over({0}, 0); }),
            "[split] the granule is 0; write 1 or more");
  EXPECT_THROW(Split::over({0}, -3), Error);
  EXPECT_EQ(error_of([] { Split::over({kMaxAxes}); }),
            "[split] there is no mesh axis 8; write a number from 0 to 7");
  EXPECT_EQ(error_of([] { Split::over({-1}); }),
            "[split] there is no mesh axis -1; write a number from 0 to 7");
}

TEST(SplitErrorTest, At) {
  auto error = [](Points p) {
    return error_of([&] { Split::at({kA}, p, grid()); });
  };
  EXPECT_EQ(error({0, 5}),
            "[split] a split into 2 parts needs 3 boundaries, but '0|5' has 2; "
            "list 0, the start of each further part, and the size");
  EXPECT_EQ(error({}),
            "[split] a split into 2 parts needs 3 boundaries, but '' has 0; "
            "list 0, the start of each further part, and the size");
  EXPECT_EQ(error_of([] { Split::at({}, {}, grid()); }),
            "[split] a split into 1 part needs 2 boundaries, but '' has 0; "
            "list 0, the start of each further part, and the size");
  EXPECT_EQ(error({1, 2, 5}),
            "[split] the boundaries 1|2|5 must start at 0 and not decrease");
  EXPECT_EQ(error({0, 6, 5}),
            "[split] the boundaries 0|6|5 must start at 0 and not decrease");
  EXPECT_EQ(error_of([] {
              Split::at({5}, {0, 1}, grid());
            }),
            "[split] mesh a=2,b=2,c=3,one=1 has no axis 5; write a number from "
            "0 to 3");
}

TEST(SplitErrorTest, Canonical) {
  EXPECT_EQ(error_of([] {
              (void)Split::at({kA}, {0, 1, 5}, grid()).canonical(grid(), 6);
            }),
            "[split] the boundaries 0|1|5 end at 5, but the dimension has "
            "size 6; write boundaries from 0 to 6");
  // The boundaries are refused even if a balanced split of size 5 has them.
  EXPECT_EQ(error_of([] {
              (void)Split::at({kA}, {0, 2, 5}, grid()).canonical(grid(), 7);
            }),
            "[split] the boundaries 0|2|5 end at 5, but the dimension has "
            "size 7; write boundaries from 0 to 7");
  EXPECT_EQ(error_of([] {
              (void)Split::at({}, {0, 5}, grid()).canonical(grid(), 7);
            }),
            "[split] the boundaries 0|5 end at 5, but the dimension has size "
            "7; write boundaries from 0 to 7");
  EXPECT_EQ(error_of([] { (void)Split::over({6}).canonical(grid(), 6); }),
            "[split] mesh a=2,b=2,c=3,one=1 has no axis 6; write a number from "
            "0 to 3");
  // The points were listed for another mesh.
  EXPECT_EQ(
      error_of([] {
        Split s = Split::at({kA}, {0, 1, 5}, grid());
        (void)s.canonical(Mesh::parse("4"), 5);
      }),
      "[split] the boundaries 0|1|5 were listed for another mesh; list 5, "
      "because on mesh a0=4 the number of parts is 4");
}

TEST(SplitErrorTest, Push) {
  EXPECT_EQ(
      error_of([] { (void)Split::over({kA}).pushed(grid(), 4, kA); }),
      "[split] mesh axis a already splits this dimension; write another axis");
}

}  // namespace
}  // namespace dtensor
