// SPDX-License-Identifier: Apache-2.0
// Compares functions that make Dims from Dims with sets of indices.
#include "dtensor/placement/dims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace dtensor {
namespace {

class Trees {
 public:
  explicit Trees(const Mesh& mesh) : mesh_(mesh) {}

  // A Dim of n indices over some of these axes.
  Dim random(int64_t n, AxisMask axes, int depth) {
    switch (depth > 0 ? below(4) : 0) {
      case 2: {  // two segments, which may share axes
        auto first = static_cast<int64_t>(below(size_t(n) + 1));
        return Dim::concat({random(first, some(axes), depth - 1),
                            random(n - first, some(axes), depth - 1)});
      }
      case 3: {  // sub-dimensions, which may not
        std::vector<int64_t> divisors;
        for (int64_t k = 1; k <= n; ++k)
          if (n % k == 0) divisors.push_back(k);
        if (divisors.empty()) break;
        int64_t outer = divisors[below(divisors.size())];
        AxisMask left = some(axes);
        return Dim::product({random(outer, left, depth - 1),
                             random(n / outer, axes & ~left, depth - 1)});
      }
      default:
        break;
    }
    std::vector<int> order;
    for (int a = 0; a < mesh_.num_axes(); ++a)
      if (axes >> a & 1) order.push_back(a);
    std::shuffle(order.begin(), order.end(), gen_);
    Split s = Split::over(order);
    if (s.whole() || below(3)) return Dim(n, s);
    std::vector<int64_t> points{0, n};
    for (int64_t i = 1; i < s.parts(mesh_); ++i)
      points.push_back(static_cast<int64_t>(below(size_t(n) + 1)));
    std::sort(points.begin(), points.end());
    return Dim(n, Split::at(order, points, mesh_));
  }
  AxisMask some(AxisMask axes) { return axes & AxisMask(gen_()); }
  size_t below(size_t n) { return gen_() % n; }

 private:
  Mesh mesh_;
  std::mt19937 gen_{5};
};

// The indices that each mesh rank has, in local order.
std::vector<std::vector<int64_t>> held(const Dim& d, const Mesh& mesh) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    IntervalList list;
    d.intervals(mesh, mesh.coordinate(r), list);
    all.emplace_back();
    for (const Interval& x : list)
      for (int64_t i = x.lo; i < x.hi; ++i) all.back().push_back(i);
  }
  return all;
}

bool subset(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::includes(b.begin(), b.end(), a.begin(), a.end());
}

template <class Fn>
void for_random(Fn&& fn) {
  for (const char* text : {"2", "3", "2x2", "2x3", "2x2x2"}) {
    Mesh mesh = Mesh::parse(text);
    Trees trees(mesh);
    for (int trial = 0; trial < 1500; ++trial) {
      auto n = static_cast<int64_t>(trees.below(13));
      Dim d = trees.random(n, mesh.all_axes(), 3).canonical(mesh);
      const Layout l{{d}, {}};
      SCOPED_TRACE(l.to_string(mesh) + " on " + text);
      fn(d, mesh, trees);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Dims, LocalOrderAscends) {
  for_random([](const Dim& d, const Mesh& mesh, Trees&) {
    for (const auto& list : held(d, mesh))
      ASSERT_TRUE(std::is_sorted(list.begin(), list.end()));
  });
}

TEST(Dims, BalancedIsTheSplitInMeshOrder) {
  EXPECT_EQ(balanced(7, 0b101), Dim(7, Split::over({0, 2})));
  EXPECT_EQ(balanced(7, 0), Dim(7));
}

TEST(Dims, RestrictedKeepsWhatWasThere) {
  for_random([](const Dim& d, const Mesh& mesh, Trees& trees) {
    AxisMask axes = trees.some(mesh.all_axes());
    Dim kept = restricted(d, mesh, axes);
    EXPECT_EQ(kept.size(), d.size());
    EXPECT_EQ(kept.axes() & ~axes, 0u);
    auto before = held(d, mesh), after = held(kept, mesh);
    for (size_t r = 0; r < before.size(); ++r)
      ASSERT_TRUE(subset(before[r], after[r])) << "rank " << r;
    if ((d.axes() & ~axes) == 0) {
      EXPECT_EQ(kept, d);
    }
  });
  // If an axis of a split is dropped, the axes after it are dropped, too.
  Mesh mesh = Mesh::parse("2x2");
  Dim d =
      Dim::concat({Dim(8, Split::over({0, 1})), Dim(8, Split::over({1, 0}))});
  EXPECT_EQ(restricted(d, mesh, 0b01),
            Dim::concat({Dim(8, Split::over({0})), Dim(8)}));
}

// Among ranks that differ only in these axes of the split, the first one that
// has an index keeps it, and no other.
TEST(Dims, FirstHeldIsWhatNoEarlierRankHas) {
  int64_t shared = 0;
  for_random([&](const Dim& d, const Mesh& mesh, Trees& trees) {
    const AxisMask axes = trees.some(mesh.all_axes());
    const auto has = held(d, mesh);
    for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
      const Coord at = mesh.coordinate(r);
      std::vector<int64_t> want;
      for (int64_t i : has[size_t(r)]) {
        bool first = true;
        for (int64_t q = 0; q < r && first; ++q) {
          AxisMask differ = 0;
          for (int a = 0; a < mesh.num_axes(); ++a)
            if (mesh.coordinate(q)[a] != at[a]) differ |= AxisMask{1} << a;
          const auto& other = has[size_t(q)];
          first = (differ & ~(axes & d.axes())) ||
                  !std::binary_search(other.begin(), other.end(), i);
        }
        if (first) want.push_back(i);
      }
      shared += static_cast<int64_t>(has[size_t(r)].size() - want.size());
      std::vector<int64_t> got;
      for (const Interval& x : first_held(d, mesh, at, axes))
        for (int64_t i = x.lo; i < x.hi; ++i) got.push_back(i);
      ASSERT_EQ(got, want) << "rank " << r;
    }
  });
  EXPECT_GT(shared, 1000);
}

// Every index has one owner for each combination of coordinates on the axes
// that do not split the dimension. No rank gets an index that it did not have.
TEST(Dims, PartitionedHasOneOwner) {
  int64_t shared = 0;
  for_random([&](const Dim& d, const Mesh& mesh, Trees&) {
    Dim owned = partitioned(d, mesh);
    EXPECT_EQ(owned.size(), d.size());
    auto before = held(d, mesh), after = held(owned, mesh);
    std::vector<int64_t> owners(static_cast<size_t>(d.size()), 0), had = owners;
    for (size_t r = 0; r < before.size(); ++r) {
      ASSERT_TRUE(subset(after[r], before[r])) << "rank " << r;
      for (int64_t i : after[r]) ++owners[static_cast<size_t>(i)];
      for (int64_t i : before[r]) ++had[static_cast<size_t>(i)];
    }
    int64_t copies = mesh.num_ranks() / mesh.size_of(owned.axes());
    for (int64_t n : owners) ASSERT_EQ(n, copies);
    // One that was a partition stays as it is.
    if (had == owners) {
      EXPECT_EQ(after, before);
    } else {
      ++shared;
    }
  });
  EXPECT_GT(shared, 100);
}

TEST(Dims, CopiesLieAlikeAtOnePlaceOfPartsOfOneSize) {
  int64_t alike = 0, not_alike = 0;
  for_random([&](const Dim& d, const Mesh& mesh, Trees&) {
    const auto has = held(d, mesh);
    bool want = true;
    for (const auto& x : has)
      for (const auto& y : has)
        for (size_t at = 0; at < x.size(); ++at) {
          const auto copy = std::find(y.begin(), y.end(), x[at]);
          want &=
              copy == y.end() || (x.size() == y.size() &&
                                  copy - y.begin() == static_cast<int64_t>(at));
        }
    ASSERT_EQ(copies_lie_alike(d, mesh), want);
    EXPECT_TRUE(copies_lie_alike(partitioned(d, mesh), mesh));
    if (d.kind() != Dim::Kind::kLeaf) ++(want ? alike : not_alike);
  });
  EXPECT_GT(alike, 100);
  EXPECT_GT(not_alike, 100);
}

TEST(Dims, EveryKeepsItsOwners) {
  int64_t said = 0, not_said = 0;
  for_random([&](const Dim& d, const Mesh& mesh, Trees& trees) {
    auto step = static_cast<int64_t>(1 + trees.below(4));
    auto kept = every(d, mesh, step);
    if (!kept) {
      EXPECT_NE(d.kind(), Dim::Kind::kLeaf);
      ++not_said;
      return;
    }
    ++said;
    EXPECT_EQ(kept->size(), (d.size() + step - 1) / step);
    auto before = held(d, mesh), after = held(*kept, mesh);
    for (size_t r = 0; r < before.size(); ++r) {
      std::vector<int64_t> want;
      for (int64_t i : before[r])
        if (i % step == 0) want.push_back(i / step);
      ASSERT_EQ(after[r], want) << "rank " << r << ", step " << step;
    }
  });
  EXPECT_GT(said, 6000);
  EXPECT_LT(not_said, 300);
}

}  // namespace
}  // namespace dtensor
