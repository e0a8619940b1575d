// SPDX-License-Identifier: Apache-2.0
// Observers of what a rank does: a timeline (trace.h), a program's record
// (program/record.h), or a function of one's own:
//
//   const OnOp observe(context, [](const OpRan& op) { fmt::print("{}\n",
//   op.op); });
//
// While a rank has no observer, it pays for none.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/communicator.h"
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
  std::function<std::string()> args;  // "dim=1, keep=true"; "" without any
  const Choice& choice;               // the layouts and their price
  const BoundRule* rule;              // the rule of that choice; null if none
  OpWork work;                    // the operator's work and messages, as priced
  std::span<const size_t> moved;  // indices of the inputs that were moved
  std::span<const Move> moves;    // moves[i] is that of input moved[i]
  int64_t bytes;  // the most bytes that a rank gets in the moves
  std::span<const DistTensor> given;  // the inputs, before they were moved
  std::span<const DistTensor> out;
  int64_t ordinal;  // the number of earlier calls in the current PathScope
  int64_t begin;    // when the call began, in ns of steady_clock
  // RankContext::events from this index on were recorded while it ran, if an
  // observer reads events: otherwise they may have been summed up since.
  size_t first_event;
  // Whether checkpoint() had kept the outputs, so that nothing was computed.
  bool kept;
};

// A kernel that has run outside of operators, such as an optimizer's.
struct KernelRan {
  std::string_view name;
  int64_t tensors;  // the number of tensors that it updates
  // Bytes that it reads or writes, each counted once, by MemoryKind.
  std::array<int64_t, kMemoryKinds> touches = {};
};

// Every function is called on the observed thread, and does nothing by default.
// The functions of Watch report collectives. An observer must not add or remove
// observers inside these functions.
class Observer : public Watch {
 public:
  void begins(const Collective&) override {}
  void ends(const Collective&) noexcept override {}
  virtual void ran(RankContext&, const OpRan&) {}
  virtual void ran(RankContext&, const KernelRan&) {}
  // Called after a collective of an operator, or of a move outside of
  // operators, has been added to RankContext::events. Those of the second
  // thread go to that thread's observer (for_second_thread()).
  virtual void sent(RankContext&) {}
  // Called at the end of a TraceSpan that began at `begin` (ns of
  // steady_clock). Must not throw.
  virtual void span(RankContext&, int64_t /*begin*/, std::string_view /*name*/,
                    int64_t /*number*/) {}
  // Called when the step that the observer shows begins; the work before it was
  // preparation. `parameters` are those of the model that the step uses. If
  // there is no such call, all work is shown.
  virtual void step_begins(RankContext&,
                           std::span<const NamedTensor> /*parameters*/) {}
  // Called when the step has ended, and when the rank's function has returned.
  // Work after the first call is not shown: later calls only update the peaks
  // of memory.
  virtual void ended(RankContext&) {}
  // Whether this observer will read RankContext::events again. If no observer
  // will, ranks may sum up the events of a long run.
  virtual bool reads_events(const RankContext&) const { return false; }
  // Returns the observer of the rank's second thread, which makes asynchronous
  // redistributions and has this context; null if that thread is not observed.
  virtual Observer* for_second_thread(RankContext&) { return nullptr; }
};

// The observers of one thread of a rank, in the order in which they were added:
//
//   for (Observer* o : context.observers) o->ended(context);
//
// The observers have to outlive the thread's use of them.
class Observers final : public Watch {
 public:
  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  void add(Observer& observer) { all_.push_back(&observer); }
  void remove(const Observer&);
  // Adds each observer's for_second_thread() to the context of that thread.
  void follow(RankContext& second) const;
  // The current time, in ns of steady_clock; -1 if there are no observers.
  int64_t now() const;
  // Whether an observer will read RankContext::events again.
  bool read_events(const RankContext&) const;

  // These call every observer: agreed() and ends() begin with the latest.
  void begins(const Collective&) override;
  void agreed(const Collective&) noexcept override;
  void ends(const Collective&) noexcept override;

 private:
  std::vector<Observer*> all_;
};

// Adds an observer to a rank for the duration of a scope.
class Observing {
 public:
  Observing(RankContext&, Observer&);
  ~Observing();
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  RankContext& context_;
  Observer& observer_;
};

// For the duration of a scope, calls a function after every operator that the
// rank computes, unless checkpoint() had kept the operator's outputs.
class OnOp final : Observer {
 public:
  using Function = std::function<void(const OpRan&)>;
  OnOp(RankContext& context, Function fn)
      : fn_(std::move(fn)), observing_(context, *this) {}

 private:
  void ran(RankContext&, const OpRan& op) override {
    if (!op.kept) fn_(op);
  }
  using Observer::ran;
  const Function fn_;
  const Observing observing_;
};

}  // namespace dtensor
