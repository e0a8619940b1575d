// Prices, in integer picoseconds so that every rank computes the same.
//
// A collective costs alpha plus the most bytes that one rank receives over the
// rate (an all-reduce counts as the reduce-scatter plus the all-gather that it
// equals; what a ring forwards is not priced), which may be another one for the
// bytes that no cache holds. Local work costs its flops over
// the rank's rate, or its bytes over the memory's, whichever is more.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

// What an all-reduce over n local elements moves at most to one rank
// (elements): member i of p receives (p-1)*c(i) + n - c(i), c(i) its chunk of
// n; in one that is one-shot (p-1)*n.
int64_t all_reduce_elements(int64_t n, int64_t p, bool one_shot = false);

// The rate may fall where bytes no longer fit into a cache: those beyond
// `cached_bytes` cost `extra_ps_per_byte` more, so that the price is the larger
// one of two lines.
struct LinkCost {
  int64_t alpha_ps = 5'000'000;  // 5 us
  double ps_per_byte = 50;       // 20 GB/s
  int64_t cached_bytes = std::numeric_limits<int64_t>::max();
  double extra_ps_per_byte = 0;  // not negative

  // Of the bytes alone.
  double bytes_ps(int64_t bytes) const {
    double ps = static_cast<double>(bytes) * ps_per_byte;
    if (bytes > cached_bytes)
      ps += static_cast<double>(bytes - cached_bytes) * extra_ps_per_byte;
    return ps;
  }
  // Is no number of bytes dearer than there?
  bool never_above(const LinkCost& c) const {
    return alpha_ps <= c.alpha_ps && ps_per_byte <= c.ps_per_byte &&
           (extra_ps_per_byte == 0 ||
            (cached_bytes >= c.cached_bytes &&
             extra_ps_per_byte <= c.extra_ps_per_byte));
  }
  // At least what either costs.
  void raise_to(const LinkCost&);
  bool operator==(const LinkCost&) const = default;
};

// Of one mesh axis, or of a group of axes: a price for all kinds, and other
// prices for some kinds.
struct AxisCost : LinkCost {
  std::array<std::optional<LinkCost>, kNumStepKinds> kinds{};
  const LinkCost& of(StepKind k) const {
    const auto& own = kinds[static_cast<size_t>(k)];
    return own ? *own : *this;
  }
  bool operator==(const AxisCost&) const = default;
};

// Prices saturate at 40 hours, so that sums of many stay in 64 bits.
inline constexpr int64_t kMostPs = int64_t{1} << 57;
// The nearest whole price; what is no number is the most.
int64_t saturated_ps(double ps);

struct CostTable {
  // By mesh axis; an axis beyond the end costs as the default.
  std::vector<AxisCost> axes;
  // Collectives over exactly these axes; others cost as the dearest alpha and
  // the dearest rates among their axes.
  struct Group {
    AxisMask axes;
    AxisCost cost;
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;
  double ps_per_flop = 10;         // 100 GFLOP/s per rank
  double ps_per_local_byte = 100;  // 10 GB/s per rank
  // What a redistribution may hold beyond source and destination.
  int64_t block_bytes = int64_t{1} << 20;
  // An all-reduce of at most so many bytes (of the largest part) is one-shot:
  // every member receives all of the others', (p - 1) times as much, instead of
  // its chunk and then the rest. Predicted and counted so; 0: never.
  int64_t one_shot_bytes = 0;
  bool operator==(const CostTable&) const = default;

  LinkCost link(StepKind, AxisMask axes) const;
  // The price of one collective over `axes` in which one rank receives at most
  // `bytes`. 0 without axes.
  int64_t collective_ps(StepKind, AxisMask axes, int64_t bytes) const;
  int64_t work_ps(double flops, double bytes) const;
  // "alpha 5 us, 20 GB/s, 100 GFLOP/s per rank".
  std::string to_string() const;
};

}  // namespace dtensor
