// Prices, in integer picoseconds so that every rank computes the same.
//
// A collective costs alpha plus the most bytes that one rank receives over the
// rate; local work its flops over the rank's rate, or its bytes over the
// memory's, whichever is more.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "placement/mesh.h"

namespace dtensor {

struct AxisCost {
  int64_t alpha_ps = 5'000'000;  // 5 us
  double ps_per_byte = 50;       // 20 GB/s
  bool operator==(const AxisCost&) const = default;
};

struct CostTable {
  // By mesh axis; an axis beyond the end costs as the default.
  std::vector<AxisCost> axes;
  double ps_per_flop = 10;         // 100 GFLOP/s per rank
  double ps_per_local_byte = 100;  // 10 GB/s per rank
  bool operator==(const CostTable&) const = default;

  // The price of one collective over `axes` in which one rank receives at most
  // `bytes`: the dearest alpha and rate among the axes. 0 without axes.
  int64_t collective_ps(AxisMask axes, int64_t bytes) const;
  int64_t work_ps(double flops, double bytes) const;
  // "alpha 5 us, 20 GB/s, 100 GFLOP/s per rank".
  std::string to_string() const;
};

}  // namespace dtensor
