// SPDX-License-Identifier: Apache-2.0
// A program whose lengths grow keeps no more for it: specs were never freed,
// and a program with a new length at every step kept 1 KB for each of its
// specs.
#include <gtest/gtest.h>

#include "dtensor/ops/decision.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/spec.h"
#include "dtensor/runtime.h"

namespace dtensor {
namespace {

TEST(GrowingLengths, KeepNoMoreThanTheCachesHold) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    constexpr int64_t kLengths = 40000;
    const Mesh mesh = rt.mesh({{"x", 2}});
    const DistTensor kept = DistTensor::empty(
        Spec::replicated(mesh, {kLengths + 1, 7}, DType::kF32));
    const Spec* const spec = kept.spec();
    for (int64_t n = 1; n <= kLengths; ++n) slice(kept, 0, 0, n);
    const CacheUse decisions = decision_use(rt.context());
    EXPECT_LE(decisions.entries, decisions.limit);
    // The caches and the thread hold less than half of this, and the table is
    // at most half free.
    EXPECT_LE(Spec::use().entries, size_t{kLengths * 3 / 4});
    // A tensor that stayed has its spec still.
    EXPECT_EQ(Spec::replicated(mesh, {kLengths + 1, 7}, DType::kF32), spec);
    EXPECT_EQ(spec->shape()[0], kLengths + 1);
  });
}

}  // namespace
}  // namespace dtensor
