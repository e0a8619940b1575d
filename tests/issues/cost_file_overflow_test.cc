// SPDX-License-Identifier: Apache-2.0
// A cost file with a rate of 1e-06 GB/s or with blocks of one byte: a price no
// longer fitted into 64 bits, and the cheapest plan was any plan. What a file
// may say now can be computed with, for tensors of 64 GiB.
#include <gtest/gtest.h>

#include "dtensor/placement/error.h"
#include "dtensor/placement/plan.h"
#include "dtensor/program/cost_file.h"
#include "tests/programs/running.h"

namespace dtensor {
namespace {

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
