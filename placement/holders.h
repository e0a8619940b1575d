// Who holds an index of a dimension, whatever tree says it.
//
// For each mesh axis that is a function of the index: the one coordinate that
// holds it, or any. (A rank holds an index if its coordinates do on every
// axis.) Two trees say the same exactly if these functions are equal, and a
// dimension of outer * inner indices is a product of two exactly if each
// function depends on the outer index alone, or on the inner one alone.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"

namespace dtensor {

// The function of one axis: its runs, again and again. In the shortest period;
// 1 where it is constant.
struct Wave {
  // [end of the run before, end) is held by the coordinate `label`, or kAny.
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
  // No axis at all, for the dimension.
  bool any() const { return constant() && runs[0].label == kAny; }
  // The greatest common divisor of the places where it changes.
  int64_t grain() const;

  // Made run by run, and then brought to the shortest period.
  void append(int64_t end, int32_t label);
  void shorten();

 private:
  bool repeats(int64_t shift) const;
};

// Of a dimension of `size` indices, at least one: the functions by mesh axis.
// An axis that is not listed is kAny throughout.
struct Holders {
  int64_t size = 1;
  std::vector<Wave> waves;

  bool whole() const { return waves.empty(); }
  bool operator==(const Holders&) const = default;
};

// Throws Error when an axis splits two parts of one product. REQUIRES: size()
// > 0.
Holders holders_of(const Dim&, const Mesh&);

// Of the product. REQUIRES: no axis is in both.
Holders times(Holders outer, const Holders& inner);

// As h.size / inner indices of `inner` each; nullopt when it is no product. A
// constant goes with the outer ones, where there is more than one. REQUIRES:
// inner divides h.size.
std::optional<std::pair<Holders, Holders>> cut(const Holders& h, int64_t inner);

// An inner size at which it is a product whose inner part is not whole: the
// period of all axes together, if that is not h.size, else the largest there
// is. 0 without any.
int64_t largest_cut(const Holders& h);

}  // namespace dtensor
