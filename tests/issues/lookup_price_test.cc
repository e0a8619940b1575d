// SPDX-License-Identifier: Apache-2.0
// A lookup in a table was priced as if it read the whole table, and computed
// with every row of it for every index.
#include <gtest/gtest.h>

#include "dtensor/dtensor.h"
#include "dtensor/ops/op.h"

namespace dtensor {
namespace {

// The price of the operator of this name in fn(), where a byte takes 1 ps.
template <class Fn>
int64_t work_ps(const char* op, Fn&& fn) {
  RunOptions options;
  options.dry_run = true;
  options.cost.ps_per_local_byte = 1;
  options.cost.ps_per_flop = 10;
  int64_t ps = -1;
  run(options, [&](Runtime& rt) {
    const Mesh mesh = rt.mesh({{"dp", 1}});
    const DistTensor table = zeros({1000, 4}, mesh),
                     ids = zeros({3}, mesh, {}, DType::kI64);
    op_trace(rt.context()) = [&](const OpCall& call) {
      if (call.op.name() == op) ps = call.decision.work_ps;
    };
    fn(table, ids);
  });
  return ps;
}

constexpr int64_t kIds = 3 * 8, kRows = 3 * 4 * 4, kTable = 1000 * 4 * 4;

TEST(LookupPrice, ReadsTheRows) {
  EXPECT_EQ(work_ps("embedding", [](auto& t, auto& i) { embedding(t, i); }),
            kIds + 2 * kRows);
  EXPECT_EQ(
      work_ps("index_select", [](auto& t, auto& i) { index_select(t, 0, i); }),
      kIds + 2 * kRows);
  EXPECT_EQ(work_ps("gather",
                    [](auto& t, auto& i) {
                      gather(t, 0, expand(reshape(i, {3, 1}), {3, 4}));
                    }),
            4 * kIds + 2 * kRows);
}

TEST(LookupPrice, OfItsGradientIsTheTable) {
  EXPECT_EQ(work_ps("embedding_backward",
                    [](DistTensor t, auto& i) {
                      t.set_requires_grad();
                      grad(sum(embedding(t, i)), {t});
                    }),
            kIds + kRows + kTable);
}

}  // namespace
}  // namespace dtensor
