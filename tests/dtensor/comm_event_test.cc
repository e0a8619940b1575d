// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_event.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
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

TEST(CommRecordTest, LeavesNothingForTheNext) {
  run(2, [](Runtime& rt) {
    const Mesh mesh = rt.mesh();
    for (int i = 0; i < 2; ++i) {
      const CommRecord record;
      gather(mesh);
      EXPECT_EQ(record.events().size(), 1u);
    }
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

// A CommRecord leaves an outer recording of the rank as it was, such as that of
// a program with --json.
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

// A run with RunOptions::record keeps sums of its events, whether its steps
// have CommRecords or not, so that it needs little memory. The CommRecord of a
// step has each event.
TEST(CommRecordTest, TheRecordOfALongRunIsShort) {
  RunOptions options;
  options.world = 2;
  options.record = true;
  for (const bool steps : {false, true})
    run(options, [&](Runtime& rt) {
      const Mesh mesh = rt.mesh();
      const DistTensor x = DistTensor::from_global(
                           Tensor::full({6}, DType::kF32, 1), mesh, "S0"),
                       y = DistTensor::from_global(
                           Tensor::full({8}, DType::kF32, 1), mesh, "S0");
      const SpecRef to[] = {x.spec()->with(Layout::replicated({6})),
                            y.spec()->with(Layout::replicated({8}))};
      const auto step = [&](int i) {
        std::optional<CommRecord> record;
        if (steps) record.emplace();
        // Two tensors move in one collective, and in every second step one
        // moves alone.
        std::vector<DistTensor> both = {x, y};
        relayout(both, to);
        if (i % 2) gather(mesh);
        if (steps) {
          EXPECT_EQ(record->events().size(), i % 2 ? 3u : 2u);
        }
      };
      for (int i = 0; i < 4000; ++i) step(i);
      EXPECT_LT(rt.context().events.size(), 5000u);
      CommRecord();
      const std::vector<CommEvent>& sums = rt.context().events;
      ASSERT_EQ(sums.size(), 1u);
      EXPECT_EQ(sums[0].kind, StepKind::kAllGather);
      EXPECT_EQ(sums[0].times, 4000 + 2000);
      EXPECT_EQ(sums[0].counted, (12 + 16) * 4000 + 12 * 2000);
      EXPECT_EQ(sums[0].predicted, (12 + 16) * 4000 + 12 * 2000);
    });
}

TEST(CommRecordTest, NeedsARun) { EXPECT_THROW(CommRecord(), Error); }

}  // namespace
}  // namespace dtensor::testing
