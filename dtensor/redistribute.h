// Moves tensors from one layout to another, and from one mesh to another.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/dist_tensor.h"
#include "dtensor/execution.h"
#include "dtensor/placement/plan.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// Returns this rank's part under `to`, given its part `local` under `from`
// (undefined on a rank outside the mesh of `from`). Carries out the planner's
// plan and records its collectives as events. A plan that only slices returns a
// view. Collective over the groups of the plan's steps. Throws Error, before
// anything is sent, if the plan exceeds the communication budget.
Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to);

// DistTensor::redistribute() and redistribute_async(): the result has memory of
// its own, which may be that of x if `consume` and x is the only handle.
struct MoveMode {
  bool async = false;
  bool consume = false;
};
DistTensor redistribute(const DistTensor& x, const Spec* to,
                        const RedistributeOptions&, MoveMode = {});

// Brings x to the layout that an operator reads. Returns x itself, a view of
// it, a copy that an earlier call made, or a new copy. The gradient is the
// identity: a cotangent keeps its layout, and its consumer moves it as needed.
DistTensor relayout(const DistTensor& x, const Spec* to);

// Moves several tensors. Those of one mesh are planned together, so that steps
// of one kind over the same axes become one collective. Parts that nobody else
// holds may be overwritten, so keep a handle of an x that is still needed.
// `async`: on the rank's second thread; reading a result waits. (Not in a dry
// run, under a communication budget, or if several meshes are involved.)
std::vector<DistTensor> relayout(std::vector<DistTensor> x,
                                 std::span<const Spec* const> to,
                                 bool async = false);

// A separate handle for x with the same memory. Its gradient has only the
// contributions of its own consumers.
DistTensor alias(const DistTensor& x);

// Records y as made from x with the identity as its gradient: for a y that has
// the value of x, but was not made by a move.
DistTensor passes_as_it_comes(const DistTensor& x, DistTensor y);

// Brings the inputs of an operator, x[i], to the layouts to[i], as above. Those
// that must be moved, and have no copy yet, move together. `all` caches the
// execution that moves all x[i] whose layout differs from to[i]; it is made if
// it is null and needed.
void relayout(RankContext&, std::span<const DistTensor> x,
              std::span<const SpecRef> to,
              std::shared_ptr<const Execution>& all, std::span<DistTensor> y);

// The layout to which a cotangent with spec `g` of a tensor with spec `x` is
// moved: split as x is, replicated on all other axes, except that sums and
// averages stay partial on axes where x is replicated.
const Spec* cotangent_spec(const Spec* x, const Spec* g);

// Converts the elements to another type; returns the tensor itself if they
// already have it.
Tensor converted(const Tensor&, DType);

// Appends an event for a separate collective if the rank records. Numbers are
// in bytes.
void record_event(RankContext&, const Mesh&, AxisMask axes, StepKind,
                  int64_t predicted, int64_t counted);

// Takes `bytes` from the communication budget of the scope. Throws Error if too
// little is left; `why` names the move.
void spend_budget(RankContext&, int64_t bytes, std::string_view why);

}  // namespace dtensor
