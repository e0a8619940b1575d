// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/owned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/spec.h"

namespace dtensor {
namespace {

std::vector<int64_t> indices(const IntervalList& list) {
  std::vector<int64_t> all;
  for (const Interval& r : list)
    for (int64_t i = r.lo; i < r.hi; ++i) all.push_back(i);
  return all;
}

IntervalList of_rank(const Dim& d, const Mesh& mesh, int64_t rank) {
  IntervalList list;
  d.intervals(mesh, mesh.coordinate(rank), list);
  return list;
}

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(OwnedTest, EveryRankHasWhatWasSaid) {
  const Mesh mesh = Mesh::parse("x=2,y=3");
  const std::vector<IntervalList> parts = {{{4, 6}}, {},       {{0, 1}, {3, 4}},
                                           {{6, 9}}, {{1, 3}}, {{9, 11}}};
  const Dim d = owned(11, mesh, 3, parts);
  EXPECT_EQ(parts_of(d, mesh), parts);
  // Over one axis of two, all ranks along the other axis have the same.
  const std::vector<IntervalList> two = {{{1, 2}, {3, 5}}, {{0, 1}, {2, 3}}};
  const Dim e = owned(5, mesh, 1, two);
  for (int64_t r = 0; r < 6; ++r)
    EXPECT_EQ(of_rank(e, mesh, r), two[static_cast<size_t>(r / 3)]);
  // The even split is recognized.
  EXPECT_EQ(owned(5, mesh, 1, {{{0, 2}}, {{2, 5}}}), Dim(5, Split::over({0})));
  EXPECT_EQ(owned(0, mesh, 1, {{}, {}}).size(), 0);
}

TEST(OwnedTest, Errors) {
  const Mesh mesh = Mesh::parse("x=2");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{0, 4}}});
            }),
            "[owned] got 1 list of indices for 2 ranks along x; pass one list "
            "for each rank");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{0, 2}}, {{3, 4}}});
            }),
            "[owned] index 2 of 4 has no owner; list every index for exactly "
            "one rank");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{0, 3}}, {{2, 4}}});
            }),
            "[owned] index 2 of 4 has two owners; list every index for exactly "
            "one rank");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{0, 4}}, {{6, 8}}});
            }),
            "[owned] index 6 of 4 does not exist; list every index for exactly "
            "one rank");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{0, 2}}, {{2, 3}}});
            }),
            "[owned] the lists of indices end at 3, but the dimension has size "
            "4; list every index of the dimension for exactly one rank");
  EXPECT_EQ(error_of([&] {
              owned(4, mesh, 1, {{{2, 4}, {0, 2}}, {}});
            }),
            "[owned] the index ranges of list 0, counted from 0, overlap or do "
            "not ascend; order them, and list each index once");
}

TEST(ZigzagTest, ARankHasAChunkFromEitherEnd) {
  const Mesh mesh = Mesh::parse("dp=2,cp=3");
  const Dim d = zigzag(12, mesh, 1);
  const std::vector<IntervalList> want = {
      {{0, 2}, {10, 12}}, {{2, 4}, {8, 10}}, {{4, 8}}};
  EXPECT_EQ(parts_of(d, mesh), want);
  // A zig-zag layout has a text, which can be read back.
  const Spec* spec = Spec::get(
      mesh, {4, 12}, {{Dim(4, Split::over({0})), d}, {}}, DType::kI64);
  const std::string text = spec->layout().to_string(mesh);
  EXPECT_EQ(parse_layout(text, mesh, {4, 12}), spec->layout()) << text;
  // Lengths that do not divide, and ranks without a part.
  for (int64_t n : {0, 1, 2, 5, 7, 13, 100}) {
    std::vector<int64_t> all;
    for (const IntervalList& p : parts_of(zigzag(n, mesh, 1), mesh))
      for (int64_t i : indices(p)) all.push_back(i);
    if (n == 0) continue;
    std::sort(all.begin(), all.end());
    std::vector<int64_t> every(static_cast<size_t>(n));
    std::iota(every.begin(), every.end(), 0);
    EXPECT_EQ(all, every) << n;
  }
}

TEST(OwnedTest, ByOneRank) {
  const Mesh mesh = Mesh::parse("a=2,b=3");
  for (int64_t owner : {0, 1, 2})
    for (int64_t r = 0; r < 6; ++r)
      EXPECT_EQ(indices(of_rank(owned_by(4, mesh, 1, owner), mesh, r)),
                r % 3 == owner ? (std::vector<int64_t>{0, 1, 2, 3})
                               : std::vector<int64_t>());
  EXPECT_EQ(error_of([&] { owned_by(4, mesh, 1, 3); }),
            "[layout] axis b has no rank 3; write Owned() of 0 to 2");
}

TEST(SubdividedTest, CutsWhatARankHas) {
  const Mesh mesh = Mesh::parse("cp=2,tp=3");
  const Dim d = subdivided(zigzag(13, mesh, 0), mesh, 1);
  for (int64_t r = 0; r < 6; ++r) {
    const std::vector<int64_t> whole =
        indices(of_rank(zigzag(13, mesh, 0), mesh, r));
    const auto n = static_cast<int64_t>(whole.size()), i = r % 3;
    EXPECT_EQ(indices(of_rank(d, mesh, r)),
              std::vector<int64_t>(whole.begin() + i * n / 3,
                                   whole.begin() + (i + 1) * n / 3));
  }
  const Mesh ranks = Mesh::parse("x=20");
  const int64_t most = int64_t{1} << 59;
  const IntervalList last = of_rank(subdivided(Dim(most), ranks, 0), ranks, 19);
  EXPECT_EQ(last[0].lo, most / 20 * 19 + most % 20 * 19 / 20);
  EXPECT_EQ(last[0].hi, most);
  // To subdivide an even split adds an axis to it.
  EXPECT_EQ(subdivided(Dim(13, Split::over({0})), mesh, 1),
            Dim(13, Split::over({0, 1})));
  EXPECT_EQ(error_of([&] { subdivided(d, mesh, 0); }),
            "[subdivided] mesh axis cp already splits this dimension; write "
            "another axis");
}

}  // namespace
}  // namespace dtensor
