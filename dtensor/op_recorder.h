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

// A call of an operator that has run. References live during the call of ran().
struct OpRan {
  std::string_view op;
  std::string args;               // "dim=1, keep=true"; "" if there are none
  const Choice& choice;           // the layouts and their price
  const BoundRule* rule;          // of that choice; null if there is none
  OpWork work;                    // by which it was priced
  std::span<const size_t> moved;  // the inputs that moved, with these moves
  std::span<const Move> moves;
  std::span<const DistTensor> given;  // as they were before they moved
  std::span<const DistTensor> out;
  // RankContext::events from this index on were recorded while it ran.
  size_t first_event;
};

// A kernel that has run for no operator: an optimizer's.
struct KernelRan {
  std::string_view name;
  int64_t tensors;  // that it updates
  // Bytes that it reads or writes, each counted once, by MemoryKind.
  std::array<int64_t, kMemoryKinds> touches = {};
};

// Is told what rank 0 does, or what the ranks of dry runs do, one rank after
// another, on the thread of the rank.
class OpRecorder {
 public:
  virtual ~OpRecorder() = default;
  virtual void ran(RankContext&, const OpRan&) = 0;
  virtual void ran(RankContext&, const KernelRan&) = 0;
  // A collective was added to RankContext::events, by an operator or by a move
  // that no operator makes.
  virtual void sent(RankContext&) = 0;
  // The step to be shown begins, and all before it was preparation. The step
  // changes these parameters. Need not be called.
  virtual void step_begins(RankContext&,
                           std::span<const NamedTensor> parameters) = 0;
  // The step has ended, or, if none had begun, the function of the rank. What
  // the rank does later is not shown. A later call only updates the peaks of
  // memory.
  virtual void ended(RankContext&) = 0;
};

}  // namespace dtensor
