// SPDX-License-Identifier: Apache-2.0
// view() never communicates: what cannot be seen where it lies is refused, on
// every rank, with the redistribute that helps.
#include <gtest/gtest.h>

#include "dtensor/ops/create.h"
#include "dtensor/ops/view.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor {
namespace {

TEST(Views, SendNothing) {
  struct {
    const char* mesh;
    int ranks;
    std::vector<const char*> layouts;
  } cases[] = {
      {"a=2", 2, {"S0", "S1", "S2", "P", "P(mean)"}},
      {"a=3", 3, {"S0", "S1", "S2"}},
      {"a=5", 5, {"S0", "S1", "S2"}},
      {"a=2,b=3", 6, {"S0,S0", "S0,S2", "S2,S0", "S1,S2", "P,S0", "S0,S1"}}};
  const std::vector<Shape> from = {{24, 1, 36}, {6, 4, 5}, {1, 8, 9}};
  const std::vector<Shape> to[] = {{{12, 24, 3}, {12, 2, 36}, {24, 36}, {864}},
                                   {{24, 5}, {12, 10}, {120}, {3, 8, 5}},
                                   {{8, 9}, {4, 18}, {72}, {2, 36}}};
  int seen = 0, refused = 0;
  for (const auto& c : cases)
    run(c.ranks, [&](Runtime& rt) {
      const Mesh mesh = Mesh::parse(c.mesh);
      rt.context().record = true;
      for (const char* layout : c.layouts)
        for (size_t f = 0; f < from.size(); ++f)
          for (const Shape& shape : to[f]) {
            const DistTensor x = DistTensor::empty(
                Spec::get(mesh, from[f], parse_layout(layout, mesh, from[f]),
                          DType::kF64));
            const std::string e = testing::error_of([&] { view(x, shape); });
            EXPECT_TRUE(rt.context().events.empty())
                << x.spec()->to_string() << " as " << to_string(shape) << ": "
                << e;
            rt.context().events.clear();
            EXPECT_TRUE(e == "no error" ||
                        e.find("x.redistribute(\"") != e.npos)
                << e;
            if (rt.rank() == 0) ++(e == "no error" ? seen : refused);
          }
    });
  EXPECT_GT(seen, 20);
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace dtensor
