// SPDX-License-Identifier: Apache-2.0
// The norm of tensors whose meshes differ by rank, rows and columns of a
// square, ended with every rank waiting for another one.
#include <gtest/gtest.h>

#include <cmath>

#include "dtensor/comm_event.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/ops/create.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor::nn {
namespace {

double squares(const DistTensor& x) {
  double sum = 0;
  for (double v : x.full().to_doubles()) sum += v * v;
  return sum;
}

TEST(GlobalNorm, OfTheRankSOwnRowAndColumn) {
  const Mesh rows[] = {Mesh::parse("r=2 of ranks 0,1"),
                       Mesh::parse("r=2 of ranks 2,3")};
  const Mesh columns[] = {Mesh::parse("c=2 of ranks 0,2"),
                          Mesh::parse("c=2 of ranks 1,3")};
  run(4, [&](Runtime& rt) {
    const auto r = static_cast<uint64_t>(rt.rank());
    const DistTensor a =
        randn({5, 3}, rows[r / 2], "S0", DType::kF64, {1, r / 2});
    const DistTensor b =
        randn({4}, columns[r % 2], "S0", DType::kF64, {2, r % 2});
    const DistTensor w = randn({3}, rows[r / 2], "R", DType::kF64, {3, r / 2});
    const double want = std::sqrt(squares(a) + squares(b) + squares(w));
    EXPECT_NEAR(global_norm({a, b, w}), want, 1e-13);
    EXPECT_NEAR(global_norm({a, b, w}), want, 1e-13);
  });
}

// Where all ranks list the same, each has the norm of all, also what it has no
// part of, and what lies on one mesh of several that share a rank.
TEST(GlobalNorm, OfMeshesThatShareARank) {
  const Mesh first = Mesh::parse("a=2 of ranks 0,1"),
             second = Mesh::parse("b=3 of ranks 3,0,2"),
             apart = Mesh::parse("c=1 of ranks 1");
  for (const bool three : {false, true})
    run(4, [&](Runtime& rt) {
      std::vector<DistTensor> all{
          randn({5, 3}, first, "S0", DType::kF64, {1, 0}),
          randn({7}, second, "S0", DType::kF64, {2, 0})};
      if (three) all.push_back(randn({2}, apart, "R", DType::kF64, {3, 0}));
      double want = 0;
      for (const DistTensor& x : all) {
        const Mesh world = Mesh::parse("w=4");
        want += squares(x.redistribute(world, "R"));
      }
      EXPECT_NEAR(global_norm(all), std::sqrt(want), 1e-13) << rt.rank();
    });
}

// A dry run runs the last rank. It counts what is sent to ranks that lack a
// part, even where that rank lacks none.
TEST(GlobalNorm, OfADryRunIsThatOfAllRanks) {
  RunOptions dry;
  dry.world = 4;
  dry.dry_run = true;
  run(dry, [&](Runtime& rt) {
    RankContext& context = rt.context();
    const DistTensor a = zeros({5}, Mesh::parse("a=2 of ranks 1,3")),
                     b = zeros({7}, Mesh::parse("b=3 of ranks 0,2,3"));
    context.record = true;
    grad_norm({a, b});
    int to_all = 0;
    for (const CommEvent& e : context.events) to_all += e.mesh.num_ranks() > 3;
    EXPECT_EQ(to_all, 2);
  });
}

}  // namespace
}  // namespace dtensor::nn
