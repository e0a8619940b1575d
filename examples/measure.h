// How long collectives take.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/placement/step_kind.h"
#include "dtensor/runtime.h"

namespace dtensor::examples {

// A redistribution that is exactly one collective.
struct Probe {
  StepKind kind;
  AxisMask axes;
  int64_t bytes;  // the most that one rank receives
  const Spec *from, *to;
  // An all-reduce in one step (CostTable::one_shot_bytes), of the same specs as
  // another probe; `bytes` is that one's.
  bool one_shot = false;
};

// Of every kind that there is over each axis of more than one rank, and over
// all of them together, sizes from 64 bytes to max_bytes. Behind all of them,
// the all-reduces of more than two ranks again, one-shot.
std::vector<Probe> probes(const Mesh &, int64_t max_bytes);

// The time of each, in microseconds: the median of `rounds` rounds of the time
// that the slowest rank took. Starts ranks as `options` say, under its own
// prices; reports on standard error.
std::vector<double> measure(const std::vector<Probe> &, RunOptions options,
                            int64_t rounds);

}  // namespace dtensor::examples
