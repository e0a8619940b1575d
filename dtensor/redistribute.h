// Carrying out a plan.
#pragma once
#include <functional>
#include <span>
#include <string_view>

#include "dtensor/dist_tensor.h"
#include "dtensor/rank_context.h"
#include "placement/plan.h"

namespace dtensor {

// `local` (a part under `from`) as a part under `to`: every step of the rank's
// plan, recorded as events. A step that only slices returns a view. Collective
// over the groups of the plan's steps. Throws Error before anything is sent
// when the plan exceeds the communication budget.
Tensor redistribute_local(const Tensor& local, const Spec* from,
                          const Spec* to);

// The value of x in the layout of `to`; reuses a copy that an earlier call
// made. Records a node when x's gradient is wanted.
DistTensor redistribute(const DistTensor& x, const Spec* to);

// Copies what two local tensors that hold these regions have in common.
void copy_common(const Tensor& dst, const Region& dst_region, const Tensor& src,
                 const Region& src_region);

// The indices `wants` (all of which `has` includes) of a local tensor that
// holds `has`: a view where they lie side by side, else a copy.
Tensor window(const Tensor& local, const Region& has, const Region& wants);

// The part of a collective that this rank holds.
Part part_of(const Tensor&, const Region&);

// Appends an event when the rank records.
void record_event(RankContext&, const Mesh&, AxisMask axes, StepKind,
                  int64_t predicted, int64_t counted);

// Takes `bytes` from the communication budget of the scope; throws Error when
// not enough is left. `why` names the move.
void spend_budget(RankContext&, int64_t bytes, std::string_view why);

}  // namespace dtensor
