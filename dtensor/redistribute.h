// SPDX-License-Identifier: Apache-2.0
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

// Returns this rank's part in layout `to`. `local` is its part in layout
// `from`, undefined on a rank outside the mesh of `from`. Carries out the
// planner's plan and records its collectives as events. If the plan only
// slices, the result is a view (a copy if a part consists of several boxes).
// Collective over the groups of the plan's steps. Throws Error, before anything
// is sent, if the plan exceeds the communication budget (CommBudget).
Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to);

struct MoveMode {
  bool async = false;    // see DistTensor::redistribute_async()
  bool consume = false;  // may reuse the memory of x if x is the only handle
};
// Does the work of DistTensor::redistribute() and redistribute_async(). The
// result has memory of its own.
DistTensor redistribute(const DistTensor& x, const Spec* to,
                        const RedistributeOptions&, MoveMode = {});

// Brings x to the layout that an operator reads. Returns x itself, a view of
// it, a copy that an earlier call made, or a new copy. The gradient is the
// identity: a cotangent keeps its layout, and its consumer moves it as needed.
DistTensor relayout(const DistTensor& x, const Spec* to);

struct RelayoutOptions {
  // Moves on the rank's second thread; reading a result waits for it. (Without
  // effect in a dry run, under a communication budget, or if several meshes are
  // involved.)
  bool async = false;
  // Reuses copies that earlier calls made, and keeps new ones for later calls
  // (if the source's keep() is kMove). A tensor that is in x several times
  // moves only once to the same layout. Must not be combined with `async`.
  bool copies = false;
  // Results are like those of DistTensor::redistribute(): they share no memory
  // with x, and cotangents are moved back. Must not be combined with the
  // options above.
  bool own = false;
  // Unless null, points to the caller's cache of an execution. If one execution
  // moves all x[i] whose layout differs from to[i], and the second thread does
  // not run it, relayout() uses *execution, after setting it if it is null.
  std::shared_ptr<const Execution>* execution = nullptr;
};

// Replaces each x[i] by the same value in layout to[i], as relayout() of one
// tensor does. Moves with the same source mesh and the same destination mesh
// are planned together: steps of one kind over the same axes become one
// collective. Parts that nothing else refers to may be overwritten, so keep a
// handle of an x[i] that is still needed.
void relayout(std::span<DistTensor> x, std::span<const SpecRef> to,
              const RelayoutOptions& = {});

// Returns a separate tensor with the value and memory of x. The gradient of the
// result has only the contributions of the result's own consumers.
DistTensor alias(const DistTensor& x);

// Records in the graph that y was made from x, with the identity as gradient
// (unless uses of x are not recorded), and returns y. Call it if y has the
// value of x, but no move made y.
DistTensor passes_as_it_comes(const DistTensor& x, DistTensor y);

// A tensor with spec `x` has a cotangent with spec `g`. Returns the layout to
// which the cotangent is moved: split as x is, and replicated on all other
// axes. But if both are on one mesh, sums and averages stay partial on axes
// where x is replicated.
const Spec* cotangent_spec(const Spec* x, const Spec* g);

// Reduces partial sums of x and rounds it to a float type, if it is exact
// (placement/dtype.h); returns any other tensor itself.
DistTensor settled(const DistTensor& x, DType);

// Converts the elements to another type; returns the tensor itself if they
// already have it, or if the tensor is undefined.
Tensor converted(const Tensor&, DType);

// Counts a collective inside an operator, and appends its event if the rank
// records. `predicted`, `counted` and `by_all` are in bytes, as in CommEvent.
void record_event(RankContext&, const Mesh&, AxisMask axes, StepKind,
                  int64_t predicted, int64_t counted, int64_t by_all);

// Takes `bytes` from the communication budget, if there is one (CommBudget).
// Throws Error if too little is left; `why` names the move in that Error.
void spend_budget(RankContext&, int64_t bytes, std::string_view why);

}  // namespace dtensor
