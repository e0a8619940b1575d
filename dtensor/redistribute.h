// Moving tensors from one layout to another, and from one mesh to another.
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

// `local` (a part under `from`, undefined where this rank is not in its mesh)
// as a part under `to`: every step of the rank's plan, recorded as events. A
// plan that only slices gives a view. Collective over the groups of the plan's
// steps. Throws Error before anything is sent when the plan exceeds the
// communication budget.
Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to);

// What a user asks for, in memory of its own: see DistTensor::redistribute()
// and redistribute_async().
DistTensor redistribute(const DistTensor& x, const Spec* to,
                        const RedistributeOptions&, bool async = false);
// The same, at once, of an x whose memory it may take over.
DistTensor redistribute(DistTensor&& x, const Spec* to,
                        const RedistributeOptions&);

// What an operator needs, to be read: the same value, whose cotangent passes as
// it comes, since whoever consumes it moves it as it needs. x itself, a window
// on it or a copy that an earlier call made, where there is one.
DistTensor relayout(const DistTensor& x, const Spec* to);

// Several at once: those of one mesh are planned together, and what they send
// in steps of one kind over the same axes is one collective. Parts that nobody
// else holds may be overwritten: whoever needs an x keeps a copy.
std::vector<DistTensor> relayout(std::vector<DistTensor> x,
                                 std::span<const Spec* const> to);

// The same by the rank's other thread; whoever reads a result waits. (In a dry
// run, under a communication budget, and between several meshes: at once.)
std::vector<DistTensor> relayout_async(std::vector<DistTensor> x,
                                       std::span<const Spec* const> to);

// x as a view that changes nothing: the same memory in a handle of its own, so
// that a gradient of it counts what was made of it alone.
DistTensor alias(const DistTensor& x);

// y, made of x's value in another way than by a move: its cotangent is x's.
DistTensor passes_as_it_comes(const DistTensor& x, DistTensor y);

// The inputs of an operator: each x[i] as to[i], as above; those that have to
// be moved and were not before move together. `all` is how all x[i] move whose
// layout is not to[i]; made when it is null and needed.
void relayout(RankContext&, std::span<const DistTensor> x,
              std::span<const Spec* const> to,
              std::shared_ptr<const Execution>& all, std::span<DistTensor> y);

// The layout of a cotangent `g` of a tensor with spec `x` where it is to stay:
// split as x is, whole elsewhere; sums and averages stay partial where x is
// whole.
const Spec* cotangent_spec(const Spec* x, const Spec* g);

// Its elements as another type; the tensor itself when they have it.
Tensor converted(const Tensor&, DType);

// Appends an event, of a collective of its own, when the rank records.
void record_event(RankContext&, const Mesh&, AxisMask axes, StepKind,
                  int64_t predicted, int64_t counted);

// Takes `bytes` from the communication budget of the scope; throws Error when
// not enough is left. `why` names the move.
void spend_budget(RankContext&, int64_t bytes, std::string_view why);

}  // namespace dtensor
