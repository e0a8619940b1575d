// SPDX-License-Identifier: Apache-2.0
// Measures the time of collectives.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/step_kind.h"
#include "dtensor/runtime.h"

namespace dtensor::examples {

// A redistribution that consists of exactly one collective.
struct Probe {
  StepKind kind;
  AxisMask axes;
  int64_t bytes;  // received by the rank that receives most
  const Spec *from, *to;
  // Whether it is an all-reduce in one step (CostTable::one_shot_bytes). There
  // is another probe with the same specs and bytes that is not one-shot.
  bool one_shot = false;
};

// Probes of every possible kind of collective over each axis of more than one
// rank, and over all of these axes together, in sizes from about 64 bytes to
// max_bytes. The one-shot variants of all-reduces among more than two ranks
// come last.
std::vector<Probe> probes(const Mesh &, int64_t max_bytes);

// The time of each probe in microseconds: the median over `rounds` rounds of
// the slowest rank's time. Starts ranks as `options` say, except that it sets
// their prices. Only rank 0's process gets the times; others get zeros. Reports
// progress on standard error.
std::vector<double> measure(const std::vector<Probe> &, RunOptions options,
                            int64_t rounds);

}  // namespace dtensor::examples
