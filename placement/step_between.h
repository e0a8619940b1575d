// SPDX-License-Identifier: Apache-2.0
// A step between two layouts of a tensor: its kind, the elements that it sends,
// and the elements that it holds.
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
  AxisMask partial = 0;          // axes of the source's partials that remain
  mutable int64_t largest = -1;  // elements of the largest part; -1: unknown
};

struct StepBetween {
  StepKind kind = StepKind::kSlice;
  AxisMask group = 0;  // see Step::axes
  ReduceOp op = ReduceOp::kSum;
};

// The steps between layouts of a tensor that starts as `source`. REQUIRES:
// route.reset() was called for `source`, and the route outlives this object.
class Steps {
 public:
  // All-reduces of at most `one_shot` elements are one-shot (see CostTable).
  Steps(const Route&, const Spec* source, int64_t one_shot = 0);

  // Sets the step between two layouts. Returns false if there is none: a
  // combined partial cannot come back, some partials must be combined before
  // others, and one step combines partials of one ReduceOp only.
  bool between(const Waypoint&, const Waypoint&, StepBetween&) const;
  // The most elements that one rank receives. If no rank receives any and no
  // partial is combined, turns the step into a slice. `exact`: see
  // Route::lack().
  int64_t received(const Waypoint&, const Waypoint&, StepBetween&,
                   bool exact) const;
  // A lower bound of what received() returns, from sizes alone.
  int64_t least_received(const Waypoint&, const Waypoint&,
                         const StepBetween&) const;
  // The most elements that one rank holds during the step, beside the source
  // and the destination of the whole route. s may be that source, and t that
  // destination.
  int64_t held(const Waypoint& s, bool is_source, const Waypoint& t,
               bool is_destination, const StepBetween&) const;

  // Takes s as far toward t as slices can. (Slices are free.) A dimension gets
  // the cut of t if that is the cut of s, followed only by axes that s does not
  // use. The other dimensions keep the cut of s.
  Waypoint sliced(const Waypoint& s, const Waypoint& t) const;
  // Adds to the group of an exchange the axes that cut t but over which s is
  // replicated, if that raises no price: ranks that differ in these axes can
  // then send too.
  void share_replicas(const Waypoint& s, const Waypoint& t, Prices&,
                      StepBetween&) const;

  Layout layout(const Waypoint&) const;
  int64_t largest(const Waypoint&) const;
  // The number of values for each element: 2 for (sum, count) pairs, else 1.
  int64_t components(const Waypoint&) const;

 private:
  bool combinable(AxisMask present, AxisMask combined, ReduceOp& op) const;
  const Route& route_;
  std::vector<Partial> partials_;  // of the source
  int64_t one_shot_;
  bool mean_;
};

// The axes of the destination's partials that can be filled from a tensor that
// is split over them: every rank keeps its part and sets the rest to the
// reduction's identity. An average has no identity, so kAvg never qualifies,
// nor does kMean. If the other partials are of several kinds, with different
// identities, none does.
AxisMask fillable(std::span<const Partial> want);

}  // namespace dtensor
