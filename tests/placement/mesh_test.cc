// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "dtensor/placement/error.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

using testing::error_of;

Coord at(std::initializer_list<int> v) {
  Coord c;
  int i = 0;
  for (int x : v) c[i++] = x;
  return c;
}

using Ranks = std::vector<int64_t>;

TEST(MeshTest, KnowsItsAxes) {
  Mesh m({{"dp", 2}, {"tp", 4}});
  EXPECT_TRUE(m.valid());
  EXPECT_EQ(m.num_axes(), 2);
  EXPECT_EQ(m.num_ranks(), 8);
  EXPECT_EQ(m.axis_name(0), "dp");
  EXPECT_EQ(m.axis_size(1), 4);
  EXPECT_EQ(m.axis("tp"), 1);
  EXPECT_TRUE(m.has_axis("dp"));
  EXPECT_FALSE(m.has_axis("pp"));
  EXPECT_EQ(m.all_axes(), 3u);
  EXPECT_EQ(m.size_of(0), 1);
  EXPECT_EQ(m.size_of(1), 2);
  EXPECT_EQ(m.size_of(2), 4);
  EXPECT_EQ(m.size_of(3), 8);
}

TEST(MeshTest, NoMesh) {
  Mesh none;
  EXPECT_FALSE(none.valid());
  EXPECT_EQ(none.to_string(), "no mesh");
  EXPECT_EQ(none.hash(), 0u);
  EXPECT_EQ(none, Mesh());
  EXPECT_NE(none, Mesh::parse("2"));
}

TEST(MeshTest, WithoutAxesIsOneRank) {
  Mesh m{std::vector<MeshAxis>{}};
  EXPECT_TRUE(m.valid());
  EXPECT_EQ(m.num_ranks(), 1);
  EXPECT_EQ(m.all_axes(), 0u);
  EXPECT_EQ(m.group(0, {}), Ranks{0});
}

TEST(MeshTest, EqualMeshesAreOne) {
  Mesh m({{"dp", 2}, {"tp", 4}});
  EXPECT_EQ(m, Mesh::parse("dp=2,tp=4"));
  EXPECT_EQ(m.hash(), Mesh::parse("dp=2,tp=4").hash());
  EXPECT_EQ(m, Mesh({{"dp", 2}, {"tp", 4}}, {0, 1, 2, 3, 4, 5, 6, 7}));
  std::vector<Mesh> others = {
      m,
      Mesh::parse("tp=4,dp=2"),
      Mesh::parse("dp=4,tp=2"),
      Mesh::parse("dp=2,tq=4"),
      Mesh::parse("dp=2,tp=4,pp=1"),
      Mesh({{"dp", 2}, {"tp", 4}}, {1, 0, 2, 3, 4, 5, 6, 7}),
      Mesh({{"dp", 2}, {"tp", 4}}, {1, 2, 3, 4, 5, 6, 7, 8})};
  std::set<uint64_t> hashes;
  for (size_t i = 0; i < others.size(); ++i) {
    hashes.insert(others[i].hash());
    for (size_t j = 0; j < i; ++j) EXPECT_NE(others[i], others[j]);
  }
  EXPECT_EQ(hashes.size(), others.size());
}

// Processes of a job compare hashes, so a new hash is a new protocol.
TEST(MeshTest, HashIsThatOfEveryProcess) {
  EXPECT_EQ(Mesh::parse("dp=2,tp=4").hash(), 4670386529855858364u);
}

TEST(MeshTest, ManyThreadsMakeOneMesh) {
  std::vector<Mesh> made(4);
  std::vector<std::thread> threads;
  for (Mesh& m : made)
    threads.emplace_back([&m] {
      for (int i = 2; i < 50; ++i) m = Mesh({{"threads", i}});
    });
  for (std::thread& t : threads) t.join();
  for (const Mesh& m : made) EXPECT_EQ(m, made[0]);
}

TEST(MeshTest, RankIsRowMajor) {
  Mesh m = Mesh::parse("dp=2,tp=4");
  EXPECT_EQ(m.coordinate(5), at({1, 1}));
  EXPECT_EQ(m.rank(at({1, 1})), 5);
  Mesh deep = Mesh::parse("2x3x4");
  int64_t r = 0;
  for (int a = 0; a < 2; ++a)
    for (int b = 0; b < 3; ++b)
      for (int c = 0; c < 4; ++c, ++r) {
        EXPECT_EQ(deep.coordinate(r), at({a, b, c}));
        EXPECT_EQ(deep.rank(at({a, b, c})), r);
      }
}

TEST(MeshTest, RanksOfTheRun) {
  Mesh plain = Mesh::parse("2x2");
  EXPECT_EQ(plain.world_rank(3), 3);
  EXPECT_EQ(plain.mesh_rank_of(3), 3);
  EXPECT_EQ(plain.mesh_rank_of(4), -1);
  EXPECT_EQ(plain.mesh_rank_of(-5), -1);
  Mesh other({{"a", 3}}, {4, 0, 7});
  EXPECT_EQ(other.world_rank(0), 4);
  EXPECT_EQ(other.mesh_rank_of(7), 2);
  EXPECT_EQ(other.mesh_rank_of(1), -1);
  EXPECT_EQ(other.mesh_rank_of(-1), -1);
  EXPECT_TRUE(other.contains(7));
  EXPECT_FALSE(other.contains(1));
  EXPECT_EQ(plain.smallest_world(), 4);
  EXPECT_EQ(other.smallest_world(), 8);
}

TEST(MeshTest, GroupsOfACollective) {
  Mesh m = Mesh::parse("a=2,b=3,c=2");
  EXPECT_EQ(m.group(0, at({1, 2, 0})), Ranks{10});
  EXPECT_EQ(m.group(0b010, at({1, 2, 0})), (Ranks{6, 8, 10}));
  EXPECT_EQ(m.group(0b101, at({1, 2, 0})), (Ranks{4, 5, 10, 11}));
  EXPECT_EQ(m.group(0b111, at({1, 2, 0})).size(), 12u);
  // Mesh ranks, not those of the run.
  EXPECT_EQ(Mesh({{"a", 2}}, {5, 3}).group(1, {}), (Ranks{0, 1}));
}

TEST(MeshTest, EachGroupIsFoundFromAllItsMembers) {
  Mesh m = Mesh::parse("2x3x2");
  for (AxisMask axes = 0; axes < 8; ++axes)
    for (int64_t r = 0; r < m.num_ranks(); ++r) {
      Ranks g = m.group(axes, m.coordinate(r));
      EXPECT_EQ(static_cast<int64_t>(g.size()), m.size_of(axes));
      EXPECT_TRUE(std::is_sorted(g.begin(), g.end()));
      EXPECT_EQ(std::count(g.begin(), g.end(), r), 1);
      for (int64_t o : g) EXPECT_EQ(m.group(axes, m.coordinate(o)), g);
    }
}

TEST(MeshTest, ForEachCoord) {
  Mesh m = Mesh::parse("2x3x2");
  auto all = [&](AxisMask axes) {
    Ranks r;
    for_each_coord(m, axes, [&](const Coord& c) { r.push_back(m.rank(c)); });
    return r;
  };
  EXPECT_EQ(all(0), Ranks{0});
  EXPECT_EQ(all(0b001), (Ranks{0, 6}));
  EXPECT_EQ(all(0b110), (Ranks{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(all(0b111), (Ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(MeshTest, Submesh) {
  Mesh m = Mesh::parse("dp=2,tp=2,pp=2");
  Mesh tp = m.submesh({"tp"}, at({1, 0, 1}));
  EXPECT_EQ(tp.to_string(), "tp=2 of ranks 5,7");
  // The axes are in the order given, not the mesh's.
  Mesh two = m.submesh({"pp", "dp"}, at({0, 1, 0}));
  EXPECT_EQ(two.to_string(), "pp=2,dp=2 of ranks 2,6,3,7");
  EXPECT_EQ(m.submesh({"dp", "tp", "pp"}, {}), m);
  EXPECT_EQ(m.submesh({"pp"}, {}), Mesh({{"pp", 2}}));
  // A submesh of a submesh still names ranks of the run.
  EXPECT_EQ(two.submesh({"dp"}, at({1, 0})).to_string(), "dp=2 of ranks 3,7");
  EXPECT_EQ(m.submesh({}, at({1, 1, 1})).world_rank(0), 7);
  EXPECT_THROW(m.submesh({"dp", "dp"}, {}), Error);
  EXPECT_THROW(m.submesh({"ep"}, {}), Error);
}

TEST(MeshTextTest, ReadsBack) {
  for (const char* text : {"dp=2,tp=4", "a0=1", "x=1,y=1,z=8", "a-b.c_2=3"})
    EXPECT_EQ(Mesh::parse(text).to_string(), text);
  EXPECT_EQ(Mesh::parse("2x4").to_string(), "a0=2,a1=4");
  EXPECT_EQ(Mesh::parse("8").to_string(), "a0=8");
  EXPECT_EQ(Mesh::parse("1x1x1x1x1x1x1x2").num_axes(), kMaxAxes);
  EXPECT_EQ(Mesh({{"a", 2}}, {5, 3}).to_string(), "a=2 of ranks 5,3");
}

TEST(MeshTextTest, ReadsBackItsRanks) {
  for (const char* text :
       {"a=2 of ranks 5,3", "x=2,y=2 of ranks 3,2,1,0", "a=1 of ranks 7"})
    EXPECT_EQ(Mesh::parse(text).to_string(), text);
  EXPECT_EQ(Mesh::parse("2x1 of ranks 1,0"),
            Mesh({{"a0", 2}, {"a1", 1}}, {1, 0}));
  EXPECT_EQ(Mesh::parse("a=3 of ranks 0,1,2"), Mesh({{"a", 3}}));
  for (const char* list : {"", ",", "1,", ",1", "1,,0", "1 0", "x", "1,0 "})
    EXPECT_EQ(
        error_of([&] { Mesh::parse("a=2 of ranks " + std::string(list)); }),
        "[mesh] '" + std::string(list) +
            "' is not a list of ranks; write numbers and commas, as in dp=2 of "
            "ranks 1,0");
  auto error = [](const char* text) {
    return error_of([&] { Mesh::parse(text); });
  };
  EXPECT_EQ(error("a=2 of ranks 1"),
            "[mesh] a=2 has 2 ranks, but the list has 1; list one rank for "
            "each place in the mesh");
  EXPECT_EQ(error("a=2 of ranks 1,1"),
            "[mesh] the list for a=2 has rank 1 twice; list each rank once");
  EXPECT_EQ(error("a=2 of ranks 0,-1"),
            "[mesh] rank -1 is negative; number ranks from 0");
  EXPECT_EQ(error("a=2 of rank 1,0"),
            "[mesh] 'a=2 of rank 1,0' is not a mesh; write dp=2,tp=4 or 2x4");
  EXPECT_THROW(Mesh::parse(" of ranks 0"), Error);
}

TEST(MeshTextTest, Axes) {
  Mesh m = Mesh::parse("dp=2,tp=4,pp=3");
  EXPECT_EQ(m.axes_to_string(0), "");
  EXPECT_EQ(m.axes_to_string(0b010), "tp");
  EXPECT_EQ(m.axes_to_string(0b101), "dp,pp");
}

TEST(MeshTextTest, ParseErrors) {
  auto error = [](const char* text) {
    return error_of([&] { Mesh::parse(text); });
  };
  EXPECT_EQ(error(""), "[mesh] the mesh is empty; write dp=2,tp=4 or 2x4");
  for (const char* text :
       {"dp", "x", "2x", "x2", "2xx2", "2,4", "2X4", " 2", "2 ", "dp=", "dp=a",
        "dp=2x4", "dp=2=3", "dp= 2", "dp=99999999999999999999"})
    EXPECT_EQ(error(text), "[mesh] '" + std::string(text) +
                               "' is not a mesh; write dp=2,tp=4 or 2x4");
  EXPECT_EQ(error("dp=2,tp"),
            "[mesh] 'tp' in 'dp=2,tp' has no size; write tp=2 or the like");
  EXPECT_EQ(
      error("2,tp=2"),
      "[mesh] '2' in '2,tp=2' has no name; write NAME=SIZE for each axis, "
      "as in dp=2,tp=4");
  EXPECT_THROW(Mesh::parse("dp=2,"), Error);
}

TEST(MeshErrorTest, Axes) {
  auto error = [](std::vector<MeshAxis> axes) {
    return error_of([&] { Mesh{axes}; });
  };
  EXPECT_EQ(error({{"a", 2}, {"a", 3}}),
            "[mesh] a=2,a=3 names axis a twice; give each axis its own name");
  EXPECT_EQ(error({{"a", 2}, {"", 3}}),
            "[mesh] axis 1 of a=2,=3 has no name; give it one, such as dp");
  EXPECT_EQ(error({{"a", 0}}), "[mesh] axis a has size 0; write 1 or more");
  EXPECT_EQ(error({{"a", -2}}), "[mesh] axis a has size -2; write 1 or more");
  EXPECT_EQ(
      error(std::vector<MeshAxis>(9, {"a", 1})),
      "[mesh] a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1 has 9 axes; write at most 8");
  int64_t k20 = 1 << 20;
  EXPECT_EQ(error({{"a", k20}, {"b", k20}}),
            "[mesh] a=1048576,b=1048576 has more than 2^30 ranks; write "
            "smaller sizes");
  EXPECT_THROW(Mesh({{"a", int64_t{1} << 62}, {"b", 4}}), Error);
  // Otherwise this axis would have the text of two axes, "a=2,b=3".
  EXPECT_EQ(
      error({{"a=2,b", 3}}),
      "[mesh] 'a=2,b' cannot name an axis; write only ASCII letters, digits, "
      "'_', '-' and '.'");
  EXPECT_THROW(Mesh({{"a b", 3}}), Error);
  EXPECT_THROW(Mesh::parse("d}p=2"), Error);
}

TEST(MeshErrorTest, Ranks) {
  auto error = [](std::vector<int64_t> ranks) {
    return error_of([&] { Mesh({{"a", 2}}, ranks); });
  };
  EXPECT_EQ(error({1}),
            "[mesh] a=2 has 2 ranks, but the list has 1; list one rank for "
            "each place in the mesh");
  EXPECT_EQ(error({0, 1, 2}),
            "[mesh] a=2 has 2 ranks, but the list has 3; list one rank for "
            "each place in the mesh");
  EXPECT_EQ(error({-1, 0}), "[mesh] rank -1 is negative; number ranks from 0");
  EXPECT_EQ(error({3, 3}),
            "[mesh] the list for a=2 has rank 3 twice; list each rank once");
  EXPECT_EQ(error({0, int64_t{1} << 62}),
            "[mesh] rank 4611686018427387904 is not below 2^30; number ranks "
            "from 0 to 2^30 - 1");
}

TEST(MeshErrorTest, NoSuchAxis) {
  EXPECT_EQ(error_of([] { (void)Mesh::parse("dp=2,tp=4").axis("pp"); }),
            "[mesh] there is no axis 'pp' in mesh dp=2,tp=4; write one of its "
            "axes, dp,tp");
  EXPECT_EQ(error_of([] { Mesh::parse("dp=2,2tp"); }),
            "[mesh] '2tp' in 'dp=2,2tp' has no size; write 2tp=2 or the like");
}

}  // namespace
}  // namespace dtensor
