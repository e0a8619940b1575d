// SPDX-License-Identifier: Apache-2.0
// The coordinates that hold each index of a dimension, independent of the tree
// that describes it.
//
// Each mesh axis has a function that maps an index to the one coordinate on the
// axis that holds it, or to "any". (A rank holds an index if its coordinate on
// every axis does.) Two trees describe the same parts exactly if they have the
// same functions. A dimension of outer * inner indices is a product of two
// dimensions exactly if each function depends on the outer index alone or on
// the inner index alone.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// The function of one axis: its values in the first period, as runs of equal
// values. The period, which repeats until the end of the dimension, is the
// shortest possible one; it is 1 if the function is constant.
struct Wave {
  // The coordinate `label` (every coordinate if it is kAny) holds the indices
  // from the previous run's end up to `end`.
  struct Run {
    int64_t end;
    int32_t label;
    bool operator==(const Run&) const = default;
  };
  static constexpr int32_t kAny = -1;

  int axis;
  std::vector<Run> runs;
  bool operator==(const Wave&) const = default;

  int64_t period() const { return runs.back().end; }
  bool constant() const { return runs.size() == 1; }
  // Whether the axis has no effect on the dimension.
  bool any() const { return constant() && runs[0].label == kAny; }
  // The greatest common divisor of the ends of the runs, so of the period too.
  int64_t grain() const;

  // append() builds the function run by run; shorten() then finds the shortest
  // period.
  void append(int64_t end, int32_t label);
  void shorten();

 private:
  bool repeats(int64_t shift) const;
};

// The functions of a dimension of `size` >= 1 indices, by mesh axis. An axis
// that is not listed is kAny throughout.
struct Holders {
  int64_t size = 1;
  std::vector<Wave> waves;

  bool whole() const { return waves.empty(); }
  bool operator==(const Holders&) const = default;
};

// The holders of the indices of a Dim. Throws Error if an axis splits two parts
// of one product. REQUIRES: size() > 0.
Holders holders_of(const Dim&, const Mesh&);

// The holders of the product of two dimensions. REQUIRES: no axis is in both.
Holders times(Holders outer, const Holders& inner);

// Cuts h into an outer dimension of h.size / inner indices and an inner one of
// `inner` indices; nullopt if h is not their product. A constant function goes
// to the outer dimension, if that has more than one index. REQUIRES: inner
// divides h.size.
std::optional<std::pair<Holders, Holders>> cut(const Holders& h, int64_t inner);

// The inner size at which to cut h into a product whose inner dimension is not
// whole: the common period of all axes if that is less than h.size, else the
// largest size that is possible. 0 if there is none.
int64_t largest_cut(const Holders& h);

}  // namespace dtensor
