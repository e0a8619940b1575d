// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_event.h"

#include <gtest/gtest.h>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"
#include "tests/testing.h"

namespace dtensor::testing {
namespace {

// All-gathers 6 floats on 2 ranks: each receives 3.
void gather(const Mesh& mesh) {
  DistTensor::from_global(Tensor::full({6}, DType::kF32, 1), mesh, "S0")
      .redistribute("R");
}

TEST(CommRecordTest, HasTheEventsOfItsScope) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    gather(mesh);
    const CommRecord record;
    EXPECT_TRUE(record.events().empty());
    gather(mesh);
    ASSERT_EQ(record.events().size(), 1u);
    const CommEvent& event = record.events()[0];
    EXPECT_EQ(event.kind, StepKind::kAllGather);
    EXPECT_EQ(event.mesh, mesh);
    EXPECT_EQ(event.predicted, 12);
    EXPECT_EQ(event.counted, 12);
  });
}

TEST(CommRecordTest, Nests) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    const CommRecord outer;
    gather(mesh);
    {
      const CommRecord inner;
      gather(mesh);
      EXPECT_EQ(inner.events().size(), 1u);
    }
    gather(mesh);
    EXPECT_EQ(outer.events().size(), 3u);
  });
}

// The rank of an outer recording, such as that of a program with --json.
TEST(CommRecordTest, LeavesRecordingAsItWas) {
  RunOptions options;
  options.world = 2;
  for (bool record : {false, true}) {
    options.record = record;
    run(options, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      { const CommRecord inside; }
      gather(mesh);
      EXPECT_EQ(rt.context().record, record);
      EXPECT_EQ(rt.context().events.size(), record ? 1u : 0u);
    });
  }
}

TEST(CommRecordTest, CountsNothingInADryRun) {
  RunOptions options;
  options.world = 2;
  options.dry_run = true;
  run(options, [](Runtime& rt) {
    const CommRecord record;
    gather(rt.mesh());
    ASSERT_EQ(record.events().size(), 1u);
    EXPECT_EQ(record.events()[0].predicted, 12);
    EXPECT_EQ(record.events()[0].counted, 0);
  });
}

TEST(CommRecordTest, NeedsARun) { EXPECT_THROW(CommRecord(), Error); }

}  // namespace
}  // namespace dtensor::testing
