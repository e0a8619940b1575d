// SPDX-License-Identifier: Apache-2.0
// Prices, in integer picoseconds, so that every rank computes the same ones.
//
// A collective costs alpha + bytes / rate, where `bytes` is the most that one
// rank receives. An all-reduce that is not one-shot counts as the
// reduce-scatter and the all-gather that it equals; bytes that a ring forwards
// are not priced. The rate may be lower for bytes that no longer fit into a
// cache. Local work costs max(flops / rate of the rank, bytes / rate of its
// memory).
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

// The most elements that one rank receives in an all-reduce of n local
// elements. Member i of p receives (p-1)*c(i) + n - c(i), where c(i) is the
// size of its chunk of the n; in a one-shot all-reduce, (p-1)*n.
int64_t all_reduce_elements(int64_t n, int64_t p, bool one_shot = false);
// The elements that all p members receive together.
int64_t all_reduce_elements_of_all(int64_t n, int64_t p, bool one_shot);

// The price of a collective: alpha, and a price per byte. Bytes beyond
// `cached_bytes`, which no longer fit into a cache, cost `extra_ps_per_byte`
// more.
struct LinkCost {
  int64_t alpha_ps = 5'000'000;  // 5 us
  double ps_per_byte = 50;       // 20 GB/s
  int64_t cached_bytes = std::numeric_limits<int64_t>::max();
  double extra_ps_per_byte = 0;  // not negative

  // The price of the bytes, without alpha.
  double bytes_ps(int64_t bytes) const {
    double ps = static_cast<double>(bytes) * ps_per_byte;
    if (bytes > cached_bytes)
      ps += static_cast<double>(bytes - cached_bytes) * extra_ps_per_byte;
    return ps;
  }
  // If true, no number of bytes costs more than with `c`. (The members are
  // compared one by one, so the result may be false nevertheless.)
  bool never_above(const LinkCost& c) const {
    return alpha_ps <= c.alpha_ps && ps_per_byte <= c.ps_per_byte &&
           (extra_ps_per_byte == 0 ||
            (cached_bytes >= c.cached_bytes &&
             extra_ps_per_byte <= c.extra_ps_per_byte));
  }
  // Raises the prices so that no number of bytes costs less than with the
  // argument.
  void raise_to(const LinkCost&);
  bool operator==(const LinkCost&) const = default;
};

// The prices of one mesh axis or of a group of axes. A kind of step without
// prices of its own in `kinds` has those of the base class.
struct AxisCost : LinkCost {
  std::array<std::optional<LinkCost>, kNumStepKinds> kinds{};
  const LinkCost& of(StepKind k) const {
    const auto& own = kinds[static_cast<size_t>(k)];
    return own ? *own : *this;
  }
  bool operator==(const AxisCost&) const = default;
};

// Each term of a price saturates at 40 hours, so that sums of dozens of terms
// fit into 64 bits.
inline constexpr int64_t kMostPs = int64_t{1} << 57;
// Rounds to whole picoseconds; NaN and larger values than kMostPs give kMostPs.
int64_t saturated_ps(double ps);

struct CostTable {
  // By mesh axis; an axis beyond the end has the default prices.
  std::vector<AxisCost> axes;
  // The prices of collectives over exactly these axes. A collective over any
  // other set of axes has the highest alpha and the highest prices per byte of
  // its axes.
  struct Group {
    AxisMask axes;
    AxisCost cost;
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;
  double ps_per_flop = 10;         // 100 GFLOP/s per rank
  double ps_per_local_byte = 100;  // 10 GB/s per rank
  // The most bytes that a redistribution holds on a rank beside source and
  // destination, if some plan keeps this limit.
  int64_t block_bytes = int64_t{1} << 20;
  // An all-reduce of at most this many bytes (of the largest part) is one-shot:
  // each of the p members receives the whole values of all others, (p - 1)
  // times these bytes, instead of its chunk of them and then the other chunks.
  // Planned and counted bytes include this. 0: never.
  int64_t one_shot_bytes = 0;
  bool operator==(const CostTable&) const = default;

  LinkCost link(StepKind, AxisMask axes) const;
  // The price of one collective over `axes` in which no rank receives more than
  // `bytes`. 0 without axes.
  int64_t collective_ps(StepKind, AxisMask axes, int64_t bytes) const;
  int64_t work_ps(double flops, double bytes) const;
  // "alpha 5 us, 20 GB/s, 100 GFLOP/s per rank", with the prices of axis 0.
  std::string to_string() const;
};

}  // namespace dtensor
