// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/assign_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "dtensor/placement/error.h"
#include "dtensor/placement/plan.h"

namespace dtensor {
namespace {

const Spec* spec(const Mesh& mesh, const Shape& shape, const char* layout) {
  return Spec::get(mesh, shape, parse_layout(layout, mesh, shape), DType::kF32);
}

// Elements that have to come from another rank, summed over the ranks, index by
// index.
int64_t moved(const Spec* from, const Mesh& to, const Layout& layout) {
  auto has = [&](const Region& region, const std::vector<int64_t>& index) {
    for (size_t d = 0; d < region.size(); ++d) {
      bool in = false;
      for (const Interval& r : region[d])
        in |= r.lo <= index[d] && index[d] < r.hi;
      if (!in) return false;
    }
    return true;
  };
  const Shape& shape = from->shape();
  int64_t count = 0;
  for (int64_t r = 0; r < to.num_ranks(); ++r) {
    const Region wants = layout.region(to, to.coordinate(r));
    const int64_t old = from->mesh().mesh_rank_of(to.world_rank(r));
    for (int64_t i = 0; i < numel(shape); ++i) {
      std::vector<int64_t> index;
      int64_t rest = i;
      for (int d = shape.size() - 1; d >= 0; --d) {
        index.insert(index.begin(), rest % shape[d]);
        rest /= shape[d];
      }
      if (!has(wants, index)) continue;
      count +=
          old < 0 || !has(from->region(from->mesh().coordinate(old)), index);
    }
  }
  return count;
}

std::vector<MeshAxis> axes_of(const Mesh& m) {
  std::vector<MeshAxis> axes;
  for (int a = 0; a < m.num_axes(); ++a)
    axes.push_back({m.axis_name(a), m.axis_size(a)});
  return axes;
}

std::vector<int64_t> ranks_of(const Mesh& m) {
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < m.num_ranks(); ++r) ranks.push_back(m.world_rank(r));
  return ranks;
}

TEST(AssignRanks, IsAsGoodAsTheBestOfAllPermutations) {
  std::mt19937 gen(1);
  int better = 0;
  const char* meshes[] = {"a=2", "a=3",     "a=4", "a=2,b=2",
                          "a=5", "a=2,b=3", "a=6"};
  const char* layouts[] = {"S0", "S1", "R"};
  for (int round = 0; round < 120; ++round) {
    const Mesh shape_of = Mesh::parse(meshes[gen() % 7]);
    const Mesh old_shape = Mesh::parse(meshes[gen() % 7]);
    auto some_ranks = [&](int64_t n) {
      std::vector<int64_t> ranks(8);
      std::iota(ranks.begin(), ranks.end(), 0);
      std::shuffle(ranks.begin(), ranks.end(), gen);
      ranks.resize(static_cast<size_t>(n));
      return ranks;
    };
    const Mesh from(axes_of(old_shape), some_ranks(old_shape.num_ranks()));
    const Mesh to(axes_of(shape_of), some_ranks(shape_of.num_ranks()));
    auto text = [&](const Mesh& m) {
      std::string t;
      for (int a = 0; a < m.num_axes(); ++a)
        t += std::string(a ? "," : "") + layouts[gen() % 3];
      return t;
    };
    const Shape shape{static_cast<int64_t>(gen() % 8),
                      static_cast<int64_t>(gen() % 7 + 1)};
    const Spec* source = spec(from, shape, text(from).c_str());
    const Layout layout = parse_layout(text(to), to, shape);
    const Mesh best = assign_ranks(source, to, layout);

    std::vector<int64_t> ranks = ranks_of(to), given = ranks;
    std::vector<int64_t> chosen = ranks_of(best), sorted = chosen;
    std::sort(ranks.begin(), ranks.end());
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, ranks);
    int64_t least = -1, most_stay = 0;
    do {
      const Mesh m(axes_of(to), ranks);
      const int64_t n = moved(source, m, layout);
      int64_t stay = 0;
      for (size_t i = 0; i < ranks.size(); ++i) stay += ranks[i] == given[i];
      if (least < 0 || n < least || (n == least && stay > most_stay)) {
        least = n;
        most_stay = stay;
      }
    } while (std::next_permutation(ranks.begin(), ranks.end()));
    EXPECT_EQ(moved(source, best, layout), least)
        << source->to_string() << " on " << from.to_string() << " -> "
        << to.to_string() << " " << layout.to_string(to);
    int64_t stay = 0;
    for (size_t i = 0; i < given.size(); ++i) stay += chosen[i] == given[i];
    EXPECT_EQ(stay, most_stay);
    better += moved(source, to, layout) > least;
  }
  EXPECT_GT(better, 20);
}

// To get from 0, 1, 2 to 2, 0, 1, an exchange of two ranks is not enough: each
// rank has to move on by one.
TEST(AssignRanks, FindsCyclesOfThree) {
  const Mesh from = Mesh::parse("a=3");
  const Mesh to({{"a", 3}}, {2, 0, 1});
  const Spec* source = spec(from, {9}, "S0");
  const Layout layout = parse_layout("S0", to, {9});
  EXPECT_EQ(moved(source, to, layout), 9);
  EXPECT_EQ(assign_ranks(source, to, layout), from);

  // The same with listed boundaries: after an exchange of any two ranks, some
  // elements still have to move.
  const Spec* ragged = Spec::get(
      from, {12}, Layout{{Dim(12, Split::at({0}, {0, 4, 8, 12}, from))}, {}},
      DType::kF32);
  const Mesh turned({{"a", 3}}, {1, 2, 0});
  const Layout same{{Dim(12, Split::at({0}, {0, 4, 8, 12}, turned))}, {}};
  const int64_t given = moved(ragged, turned, same);
  EXPECT_EQ(given, 12);
  for (auto swap : {std::pair(0, 1), std::pair(0, 2), std::pair(1, 2)}) {
    std::vector<int64_t> r{1, 2, 0};
    std::swap(r[static_cast<size_t>(swap.first)],
              r[static_cast<size_t>(swap.second)]);
    EXPECT_GT(moved(ragged, Mesh({{"a", 3}}, r), same), 0);
  }
  EXPECT_EQ(moved(ragged, assign_ranks(ragged, turned, same), same), 0);
}

TEST(AssignRanks, TiesKeepTheGivenOrder) {
  const Mesh from = Mesh::parse("a=4");
  const Mesh to({{"x", 2}, {"y", 2}}, {7, 5, 6, 4});
  const Spec* source = spec(from, {8, 8}, "S0");
  // None of these ranks has anything.
  EXPECT_EQ(assign_ranks(source, to, parse_layout("S0,S1", to, {8, 8})), to);
  // All of them need everything.
  const Mesh same({{"a", 4}}, {3, 1, 0, 2});
  EXPECT_EQ(assign_ranks(source, same, parse_layout("R", same, {8, 8})), same);
}

TEST(AssignRanks, RefusesALayoutOfAnotherShape) {
  const Mesh mesh = Mesh::parse("a=2");
  EXPECT_THROW(
      assign_ranks(spec(mesh, {4}, "S0"), mesh, parse_layout("S0", mesh, {5})),
      Error);
}

// 256 ranks take well under a second.
TEST(AssignRanks, ManyRanks) {
  const int64_t n = 256;
  std::vector<int64_t> ranks(n);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::mt19937 gen(3);
  std::shuffle(ranks.begin(), ranks.end(), gen);
  const Mesh from({{"a", n}}, ranks);
  const Mesh to = Mesh::parse("a=256");
  const Spec* source = spec(from, {n, 4}, "S0");
  EXPECT_EQ(assign_ranks(source, to, parse_layout("S0", to, {n, 4})), from);
}

}  // namespace
}  // namespace dtensor
