// SPDX-License-Identifier: Apache-2.0
// Tests which cost files are read, and which are refused.
#include "dtensor/program/cost_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dtensor/placement/error.h"
#include "dtensor/placement/plan.h"
#include "tests/programs/running.h"

namespace dtensor {
namespace {

using testing::write_file;

const Mesh& mesh() {
  static const Mesh mesh = Mesh::parse("dp=2,tp=4,pp=3");
  return mesh;
}

CostTable read(const std::string& text) {
  return read_cost_file(write_file("cost.json", text), mesh());
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

const LinkCost kDefault;

TEST(CostFile, NothingIsTheDefault) {
  CostTable expected;
  expected.axes.assign(3, AxisCost{});
  EXPECT_EQ(read("{}"), expected);
}

TEST(CostFile, AnEntryPerAxis) {
  const CostTable t = read(R"({"axes": [
      {"alpha_us": 1.0, "gbytes_per_s": 20.0,
       "kinds": {"reduce_scatter": {"alpha_us": 3, "gbytes_per_s": 8},
                 "all-gather": {"alpha_us": 0}}},
      {"alpha_us": 0, "gbytes_per_s": 40},
      {}]})");
  ASSERT_EQ(t.axes.size(), 3u);
  EXPECT_EQ(t.link(StepKind::kAllToAll, 1), (LinkCost{1'000'000, 50}));
  EXPECT_EQ(t.link(StepKind::kReduceScatter, 1), (LinkCost{3'000'000, 125}));
  // The all-gather has its own latency, but the axis's rate.
  EXPECT_EQ(t.link(StepKind::kAllGather, 1), (LinkCost{0, 50}));
  EXPECT_EQ(t.link(StepKind::kReduceScatter, 2), (LinkCost{0, 25}));
  EXPECT_EQ(t.link(StepKind::kPermute, 4), kDefault);
  // alpha plus bytes over the rate: 1 us and 1000 bytes at 20 GB/s.
  EXPECT_EQ(t.collective_ps(StepKind::kExchange, 1, 1000), 1'050'000);
  EXPECT_EQ(t.collective_ps(StepKind::kReduceScatter, 1, 1000), 3'125'000);
}

TEST(CostFile, AxesByName) {
  const CostTable t = read(
      R"({"alpha_us": 2, "gbytes_per_s": 10,
          "axes": {"tp": {"gbytes_per_s": 100}}})");
  EXPECT_EQ(t.link(StepKind::kAllToAll, 1), (LinkCost{2'000'000, 100}));
  EXPECT_EQ(t.link(StepKind::kAllToAll, 2), (LinkCost{2'000'000, 10}));
  EXPECT_EQ(t.link(StepKind::kAllToAll, 4), (LinkCost{2'000'000, 100}));
}

TEST(CostFile, Groups) {
  const CostTable t = read(R"({
      "axes": [{"alpha_us": 1, "gbytes_per_s": 10},
               {"alpha_us": 2, "gbytes_per_s": 40}, {}],
      "groups": [{"axes": ["tp", "dp"], "gbytes_per_s": 5,
                  "kinds": {"exchange": {"alpha_us": 9}}},
                 {"axes": [0, 2], "alpha_us": 0}]})");
  // A price that a group lacks is the highest of its axes.
  EXPECT_EQ(t.link(StepKind::kAllToAll, 0b011), (LinkCost{2'000'000, 200}));
  EXPECT_EQ(t.link(StepKind::kExchange, 0b011), (LinkCost{9'000'000, 200}));
  EXPECT_EQ(t.link(StepKind::kExchange, 0b101), (LinkCost{0, 100}));
  // A group without an entry, and a single axis of a group with an entry.
  EXPECT_EQ(t.link(StepKind::kExchange, 0b111), (LinkCost{5'000'000, 100}));
  EXPECT_EQ(t.link(StepKind::kExchange, 0b001), (LinkCost{1'000'000, 100}));
}

// The first 1000 bytes cost 50 ps each, and further ones 200 ps.
TEST(CostFile, BytesBeyondACache) {
  const char* text = R"({"axes": {
    "dp": {"alpha_us": 1, "beyond": {"bytes": 1000, "gbytes_per_s": 5},
           "kinds": {"all_gather": {"alpha_us": 2},
                     "exchange": {"gbytes_per_s": 10}}},
    "tp": {"alpha_us": 3, "gbytes_per_s": 10}}})";
  const CostTable t = read(text);
  EXPECT_EQ(t.collective_ps(StepKind::kPermute, 1, 1000), 1'050'000);
  EXPECT_EQ(t.collective_ps(StepKind::kPermute, 1, 3000), 1'450'000);
  EXPECT_EQ(t.collective_ps(StepKind::kAllGather, 1, 3000), 2'450'000);
  // If a kind has its own rate, that is the rate of all bytes.
  EXPECT_EQ(t.collective_ps(StepKind::kExchange, 1, 3000), 1'300'000);
  // Two axes have the higher price of each kind.
  EXPECT_EQ(t.collective_ps(StepKind::kPermute, 3, 3000), 3'600'000);
  EXPECT_EQ(cost_json(read(cost_json(t, mesh()).dump()), mesh()),
            cost_json(t, mesh()));
}

TEST(CostFile, LocalWork) {
  const CostTable t = read(
      R"({"gflop_per_s": 500, "local_gbytes_per_s": 4, "block_bytes": 1024})");
  EXPECT_EQ(t.ps_per_flop, 2);
  EXPECT_EQ(t.ps_per_local_byte, 250);
  EXPECT_EQ(t.block_bytes, 1024);
}

TEST(CostFile, ReadsWhatItWrites) {
  CostTable t;
  t.axes.assign(3, AxisCost{});
  t.axes[0] = {{123'000, 1000 / 7.0},
               {std::nullopt, std::nullopt, LinkCost{0, 1000 / 0.3}}};
  t.axes[1].kinds[static_cast<size_t>(StepKind::kReduceExchange)] =
      LinkCost{1, 0.125};
  t.groups.push_back({0b110, {{7'000, 2}, {}}});
  t.groups.back().cost.kinds[static_cast<size_t>(StepKind::kPermute)] =
      LinkCost{8'000'000, 3};
  t.block_bytes = 77;
  t.one_shot_bytes = 512;
  const CostTable back = read(cost_json(t, mesh()).dump());
  ASSERT_EQ(back.axes.size(), 3u);
  EXPECT_EQ(back.block_bytes, 77);
  EXPECT_EQ(back.one_shot_bytes, 512);
  for (AxisMask axes = 1; axes < 8; ++axes)
    for (int k = 0; k < kNumStepKinds; ++k) {
      const auto kind = static_cast<StepKind>(k);
      EXPECT_EQ(back.link(kind, axes).alpha_ps, t.link(kind, axes).alpha_ps);
      EXPECT_NEAR(back.link(kind, axes).ps_per_byte,
                  t.link(kind, axes).ps_per_byte, 1e-9);
    }
  // A second time it is written as it was read.
  EXPECT_EQ(cost_json(back, mesh()), cost_json(t, mesh()));
}

struct Mistake {
  const char *text, *says;
};

TEST(CostFile, EveryMistakeIsOneSentence) {
  const Mistake mistakes[] = {
      {"", "invalid JSON from line 1 on"},
      {"{\"alpha_us\": 5,\n\n!}", "invalid JSON from line 3 on"},
      {"[]", "the file is not a JSON object"},
      {"5", "the file is not a JSON object"},
      {R"({"alpha": 5})",
       "the file has an unknown entry 'alpha'; write one of axes, "},
      {R"({"gb_per_s": 5})", "gbytes_per_s"},
      {R"({"alpha_us": -1})",
       "alpha_us of the file is -1; write a number from 0 to 1e+07"},
      {R"({"alpha_us": 1e10})", "is 10000000000.0; write a number from 0"},
      {R"({"alpha_us": 1e999})", "a number does not fit into 64 bits"},
      {R"({"alpha_us": "5"})", "alpha_us of the file is \"5\""},
      {R"({"alpha_us": null})", "is null"},
      {R"({"alpha_us": true})", "is true"},
      {R"({"alpha_us": [5]})", "is [5]"},
      {R"({"alpha_us": NaN})", "invalid JSON from line 1 on"},
      {R"({"gbytes_per_s": 0})",
       "gbytes_per_s of the file is 0; write a number from 0.001 to 1e+09"},
      {R"({"gbytes_per_s": -3})", "is -3"},
      {R"({"gbytes_per_s": 1e-300})", "is 1e-300"},
      {R"({"beyond": 5})", "beyond of the file is 5; write an object"},
      {R"({"beyond": {"bytes": 5}})", "beyond of the file has no gbytes_per_s"},
      {R"({"beyond": {"gbytes_per_s": 5}})", "beyond of the file has no bytes"},
      {R"({"beyond": {"bytes": -5, "gbytes_per_s": 5}})",
       "bytes of beyond of the file is -5; write a whole number of at least 0"},
      {R"({"beyond": {"bytes": 5, "gbytes_per_s": 20}})",
       "gbytes_per_s of beyond of the file is 20, but the rate of fewer bytes "
       "is 20; write a lower rate"},
      {R"({"gflop_per_s": 0})", "gflop_per_s is 0"},
      {R"({"local_gbytes_per_s": "x"})", "local_gbytes_per_s is \"x\""},
      {R"({"one_shot_bytes": -1})",
       "one_shot_bytes is -1; write a whole number of at least 0"},
      {R"({"block_bytes": 0})", "block_bytes is 0; write a whole number"},
      {R"({"axes": {"tp": {"gbytes_per_s": 1e-06}}})",
       "gbytes_per_s of axis tp is 1e-06; write a number from 0.001"},
      {R"({"alpha_us": 600, "block_bytes": 64})",
       "block_bytes is 64, and every block takes a latency of up to 600 us, so "
       "the time of 64 GiB is too large to compute with; write a larger "
       "block_bytes or a smaller alpha_us"},
      {R"({"axes": {"tp": {"kinds": {"exchange": {"alpha_us": 601}}}},
           "block_bytes": 64})",
       "a latency of up to 601 us"},
      {R"({"groups": [{"axes": [0, 1], "alpha_us": 602}], "block_bytes": 64})",
       "a latency of up to 602 us"},
      {R"({"block_bytes": 63})", "write a whole number of at least 64"},
      {R"({"block_bytes": 1.5})", "block_bytes is 1.5"},
      {R"({"block_bytes": -1})", "block_bytes is -1"},
      {R"({"block_bytes": 99999999999999999999})", "block_bytes is 1e+20"},
      {R"({"alpha_us": 1, "alpha_us": 2})", "'alpha_us' occurs twice"},
      {R"({"axes": {"tp": {}, "tp": {}}})", "'tp' occurs twice in one object"},
      {"{\"alpha_us\n\": 5}", "invalid JSON from line 1 on"},
      {R"({"alpha_us": -1e999})", "write one nearer to 0"},
      {R"({"axes": 3})", "axes is 3; write a list"},
      {R"({"axes": []})",
       "the length of axes is 0, but the number of axes of mesh "
       "dp=2,tp=4,pp=3 is 3"},
      {R"({"axes": [{}, {}, {}, {}]})", "the length of axes is 4"},
      {R"({"axes": [{}, 5, {}]})", "axis tp is 5; write an object"},
      {R"({"axes": {"ep": {}}})",
       "axes has an entry 'ep', which is not an axis of mesh dp=2,tp=4,pp=3; "
       "write one of dp,tp,pp"},
      {R"({"axes": {"tp": {"beta": 1}}})",
       "axis tp has an unknown entry 'beta'"},
      {R"({"axes": {"tp": {"alpha_us": -2}}})", "alpha_us of axis tp is -2"},
      {R"({"axes": {"tp": {"kinds": []}}})", "kinds of axis tp is []"},
      {R"({"axes": {"tp": {"kinds": {"gossip": {}}}}})",
       "kinds of axis tp has an unknown entry 'gossip'; write one of "
       "all_gather, "},
      {R"({"axes": {"tp": {"kinds": {"all-gather": {}, "all_gather": {}}}}})",
       "kinds of axis tp has all_gather twice"},
      {R"({"axes": {"tp": {"kinds": {"slice": {}}}}})",
       "an unknown entry 'slice'"},
      {R"({"axes": {"tp": {"kinds": {"permute": 5}}}})",
       "permute of axis tp is 5"},
      {R"({"axes": {"tp": {"kinds": {"permute": {"kinds": {}}}}}})",
       "permute of axis tp has an unknown entry 'kinds'"},
      {R"({"axes": {"tp": {"kinds": {"permute": {"gbytes_per_s": 0}}}}})",
       "gbytes_per_s of permute of axis tp is 0"},
      {R"({"groups": {}})", "groups is {}; write a list"},
      {R"({"groups": [5]})", "group 0 is 5"},
      {R"({"groups": [{}]})", "axes of group 0 is missing"},
      {R"({"groups": [{"axes": "dp,tp"}]})", "axes of group 0 is \"dp,tp\""},
      {R"({"groups": [{"axes": [0]}]})", "axes of group 0 is [0]"},
      {R"({"groups": [{"axes": [0, 3]}]})", "group 0 has an axis 3"},
      {R"({"groups": [{"axes": [0, -1]}]})", "group 0 has an axis -1"},
      {R"({"groups": [{"axes": ["dp", "ep"]}]})", "group 0 has an axis \"ep\""},
      {R"({"groups": [{"axes": ["dp", 0]}]})", "group 0 names axis dp twice"},
      {R"({"groups": [{"axes": [0, 1]}, {"axes": ["tp", "dp"]}]})",
       "group 1 has the axes dp,tp, as an earlier group has"},
      {R"({"groups": [{"axes": [0, 1], "gb": 1}]})",
       "group 0 has an unknown entry 'gb'"},
  };
  const std::string head = "[--cost] " + testing::temporary("cost.json") + ": ";
  for (const Mistake& m : mistakes) {
    const std::string error = error_of(m.text);
    EXPECT_EQ(error.find(head), 0u) << m.text << "\n" << error;
    EXPECT_NE(error.find(m.says), error.npos) << m.text << "\n" << error;
    EXPECT_EQ(error.find('\n'), error.npos) << m.text << "\n" << error;
  }
  for (const char* path : {"/no/such/file", "/"}) {
    try {
      read_cost_file(path, mesh());
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
}

// Guards a fix: with a rate of 1e-06 GB/s or blocks of one byte, a price did
// not fit into 64 bits, and any plan was the cheapest. Such files are refused,
// and with all others the prices of tensors of 64 GiB can be computed.

CostTable read(const std::string& text, const Mesh& mesh) {
  return read_cost_file(testing::write_file("cost.json", text), mesh);
}

TEST(CostFileOverflow, WhatOverflowedIsRefused) {
  const Mesh mesh = Mesh::parse("tp=4");
  for (const char* text :
       {R"({"axes": {"tp": {"gbytes_per_s": 1e-06}}, "block_bytes": 1})",
        R"({"gbytes_per_s": 1e-06})", R"({"block_bytes": 1})",
        R"({"alpha_us": 1e9})", R"({"alpha_us": 1e6, "block_bytes": 1024})"})
    EXPECT_THROW(read(text, mesh), Error) << text;
}

TEST(CostFileOverflow, WhatIsTakenCanBeComputedWith) {
  const Mesh mesh = Mesh::parse("dp=2,tp=2");
  const Shape shape = {1 << 17, 1 << 17};  // 64 GiB of f32
  const std::vector<std::string> layouts = {"R,R",   "S0,R", "R,S1", "S0,S1",
                                            "S1,S0", "P,R",  "P,S0", "P,P"};
  for (const char* text :
       {R"({"gbytes_per_s": 0.001, "alpha_us": 500, "block_bytes": 64})",
        R"({"gbytes_per_s": 0.001, "alpha_us": 8e6, "block_bytes": 1048576})",
        R"({"gbytes_per_s": 0.001, "alpha_us": 1e7,
            "block_bytes": 1000000000000})"}) {
    const CostTable cost = read(text, mesh);
    for (const std::string& from : layouts)
      for (const std::string& to : layouts) {
        const auto spec = [&](const std::string& layout) {
          return Spec::get(mesh, shape, parse_layout(layout, mesh, shape),
                           DType::kF32);
        };
        const Plan p = plan(spec(from), spec(to), cost);
        EXPECT_GE(static_cast<double>(p.time_ps),
                  0.99e6 * static_cast<double>(p.bytes))
            << text << "\n"
            << from << " -> " << to;
      }
  }
}

}  // namespace
}  // namespace dtensor
