// What a step between two layouts of a tensor is called, sends and holds.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/placement/cost.h"
#include "dtensor/placement/layout.h"
#include "dtensor/placement/prices.h"
#include "dtensor/placement/route.h"
#include "dtensor/placement/spec.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

// A layout between the ends of a Route.
struct Waypoint {
  Cuts cuts{};
  AxisMask split = 0;
  AxisMask partial = 0;          // of the source's partials, those still there
  mutable int64_t largest = -1;  // elements of the largest part; -1: unknown
};

struct StepBetween {
  StepKind kind = StepKind::kSlice;
  AxisMask group = 0;  // as Step::axes
  ReduceOp op = ReduceOp::kSum;
};

// The steps between layouts of a tensor that is `source` at first. REQUIRES:
// the route was reset for it, and outlives this.
class Steps {
 public:
  // All-reduces of at most `one_shot` elements are one-shot.
  Steps(const Route&, const Spec* source, int64_t one_shot = 0);

  // False when there is no step: a partial cannot come back, or cannot be
  // combined before another.
  bool between(const Waypoint&, const Waypoint&, StepBetween&) const;
  // The most elements that one rank receives. When that is none, and nothing is
  // combined, it is a slice, whatever it looks like.
  int64_t received(const Waypoint&, const Waypoint&, StepBetween&,
                   bool exact) const;
  // The most elements that one rank holds during the step besides the source
  // and the destination of the whole route, of which these may be one each.
  int64_t held(const Waypoint& s, bool is_source, const Waypoint& t,
               bool is_destination, const StepBetween&) const;

  // s cut further wherever t only cuts further, over axes that s leaves free:
  // what is free on the way to t.
  Waypoint sliced(const Waypoint& s, const Waypoint& t) const;
  // Adds to the group of an exchange the axes over which s is replicated and t
  // is not, where that costs nothing: who differs in them can serve too.
  void share_replicas(const Waypoint& s, const Waypoint& t, Prices&,
                      StepBetween&) const;

  Layout layout(const Waypoint&) const;
  int64_t largest(const Waypoint&) const;
  // Values per element.
  int64_t components(const Waypoint&) const;

 private:
  bool combinable(AxisMask present, AxisMask combined, ReduceOp& op) const;
  const Route& route_;
  std::vector<Partial> partials_;  // of the source
  int64_t one_shot_;
  bool mean_;
};

// The partials of a destination that can be filled where a tensor is split over
// their axes: every rank keeps its part among identities. So the identity has
// to be one and the same (none where kinds differ), and an average has none.
AxisMask fillable(std::span<const Partial> want);

}  // namespace dtensor
