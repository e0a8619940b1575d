// Parameters that rest in parts, where operators use them (ZeRO's stage 3; see
// DistTensor::gather_on_use()).
//
// A parameter is gathered when an operator needs it and freed behind it. If a
// gradient will need it again, it is held while there is room: for the last
// ones that were gathered always, for others as far as they fit into half of
// RankContext::gather_budget, of which the least recently used go first. So
// what ends the forward pass is there when the backward pass begins. What is
// held follows from the order of the uses alone.
//
// The other half is for those that come next: the rank's other thread gathers
// ahead, in the order of the step before (what lies between two calls of
// end_gather_step()). A step that goes another way gathers as it goes, and no
// more than it would have.
//
// What would be freed at once is not gathered where ranks share memory and the
// operator can read it where it lies. As many bytes count as sent.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/dist_tensor.h"
#include "dtensor/placement/schedule.h"
#include "dtensor/rank_context.h"

namespace dtensor {

// Has it to be gathered where it is used?
inline bool gathers(const DistTensor& x) {
  return x.defined() && x.impl()->use != nullptr;
}

// seen[i] = x[i] as operators see it: x[i] itself, or what gather_inputs() will
// give its part.
void see_inputs(std::span<const DistTensor> x, std::span<DistTensor> seen);

// An input that need not be gathered, if the boxes that it lies in will do: it
// is read where it lies, when the others are there, and its part stays away.
struct ReadInput {
  size_t input;
  std::function<bool(std::span<const SourceBox>)> will_do;
  Communicator::ReadSources read;
};
// Those that are missing are gathered together, but for that one. Was it read?
// Collective.
bool gather_inputs(RankContext&, std::span<const DistTensor> x,
                   std::span<DistTensor> seen, const ReadInput* = nullptr);

// The parameter as `to`, which is made when its part is first read; without
// gather_on_use() it is moved then. Whoever reads it, all ranks do.
DistTensor gathered_when_read(const DistTensor& parameter, const Spec* to);

// A gradient will need it, and needs it no more (of a run that has ended:
// without a context).
void await_gather(const DistTensor& parameter);
void forget_gather(RankContext*, const DistTensor& parameter);
// An operator has run that saw it.
void free_gathered(RankContext&, const DistTensor& parameter);

// The parameters are about to change, and the next step begins.
void end_gather_step(RankContext&);

}  // namespace dtensor
