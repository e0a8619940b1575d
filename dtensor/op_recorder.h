// SPDX-License-Identifier: Apache-2.0
// An observer of the operators that a rank runs: a program's record
// (program/record.h), for example.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dtensor/comm_event.h"
#include "dtensor/memory_kind.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/plan.h"

namespace dtensor {

class DistTensor;
struct NamedTensor;
struct RankContext;

// A call of an operator that has run. The references, spans and pointers are
// valid only during the call of ran().
struct OpRan {
  std::string_view op;
  std::string args;               // "dim=1, keep=true"; "" if there are none
  const Choice& choice;           // the layouts and their price
  const BoundRule* rule;          // of that choice; null if there is none
  OpWork work;                    // the operator's work and messages, as priced
  std::span<const size_t> moved;  // indices of the inputs that were moved
  std::span<const Move> moves;    // moves[i] is that of input moved[i]
  std::span<const DistTensor> given;  // the inputs, before they were moved
  std::span<const DistTensor> out;
  // RankContext::events from this index on were recorded while it ran.
  size_t first_event;
};

// A kernel that has run outside of operators, such as an optimizer's.
struct KernelRan {
  std::string_view name;
  int64_t tensors;  // the number of tensors that it updates
  // Bytes that it reads or writes, each counted once, by MemoryKind.
  std::array<int64_t, kMemoryKinds> touches = {};
};

// Observes rank 0 of a run. Or observes several dry runs, one after another;
// each has only one rank. The functions are called on the observed rank's
// thread.
class OpRecorder {
 public:
  virtual ~OpRecorder() = default;
  virtual void ran(RankContext&, const OpRan&) = 0;
  virtual void ran(RankContext&, const KernelRan&) = 0;
  // Called after a collective of an operator, or of a move outside of
  // operators, has been added to RankContext::events.
  virtual void sent(RankContext&) = 0;
  // Called when the step begins that the observer is to show; the work before
  // it was preparation. `parameters` are those of the model that the step uses.
  // If there is no such call, all work is shown.
  virtual void step_begins(RankContext&,
                           std::span<const NamedTensor> parameters) = 0;
  // Called when the step has ended, and when the rank's function has returned.
  // Work after the first call is not shown: later calls only update the peaks
  // of memory.
  virtual void ended(RankContext&) = 0;
};

}  // namespace dtensor
