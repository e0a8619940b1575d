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

// A redistribution that consists of exactly one collective, for measuring it.
struct Probe {
  StepKind kind;
  AxisMask axes;
  int64_t bytes;  // received by the rank that receives most
  const Spec *from, *to;
  // Whether it is a one-shot all-reduce (CostTable::one_shot_bytes). There is
  // another probe with the same specs and bytes that is not one-shot.
  bool one_shot = false;
};

// Returns probes of every possible kind of collective over each axis of more
// than one rank, and over all of these axes together. Sizes are from about 64
// bytes, or that of the smallest tensor that such a collective can move, to
// about max_bytes. All-reduces among more than two ranks also have one-shot
// probes, which come last.
std::vector<Probe> probes(const Mesh &, int64_t max_bytes);

// Returns the time of each probe in microseconds: the median over `rounds`
// rounds of the slowest rank's time. Runs ranks with `options`, except for the
// prices, which it sets itself. Only the process of rank 0 gets the times;
// other processes get zeros. Reports progress on standard error.
std::vector<double> measure(const std::vector<Probe> &, RunOptions options,
                            int64_t rounds);

}  // namespace dtensor::examples
