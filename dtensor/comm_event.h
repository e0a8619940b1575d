// SPDX-License-Identifier: Apache-2.0
// A record of a rank's collectives, and of the bytes that it receives in them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/mesh.h"
#include "dtensor/placement/step_kind.h"

namespace dtensor {

class Execution;
struct RankContext;

// A collective, or one tensor's share of it, that has run. In a dry run, one
// that would have run.
struct CommEvent {
  Mesh mesh;
  AxisMask axes;
  StepKind kind;
  std::string op;     // the operator that needs it
  std::string phase;  // "forward", "backward", ...
  int64_t predicted;  // the most bytes that any rank receives
  int64_t counted;    // bytes that this rank received; 0 in a dry run
  // The number of the collective. If several tensors move in it, each has its
  // own event with this number. It is 0 in a sum of events (see `times`).
  int64_t collective = 0;
  // How often the collective ran, each time on another part of the tensors. In
  // a sum of events, which ~CommRecord() makes, the number of collectives.
  int64_t times = 1;
  // If this rank made the event in a step of a plan: the plan's execution, and
  // the event's index in Execution::sent(). Null and 0 for a collective inside
  // an operator, for a sum of events, and in the list that merge_events() makes
  // from the events of all ranks of the run (comm_table.h).
  std::shared_ptr<const Execution> execution = nullptr;
  size_t place = 0;
  // For a collective inside an operator: the bytes that all ranks of the mesh
  // receive together, on the assumption that each group of ranks exchanges as
  // much as this rank's group. (For a plan's step, see placement/received.h.)
  int64_t by_all = 0;
};

// The part of a rank's state that counts its communication (RankContext).
struct CommLog {
  // Whether the rank adds its collectives to `events`.
  bool record = false;
  std::vector<CommEvent> events;
  int64_t collectives = 0;  // the number of the latest collective
  // The time that the rank's main thread, while `record` was set, spent in
  // collectives or waiting for its second thread: communication that no
  // computation hid.
  int64_t exposed_ns = 0;
};

// Records this rank's collectives, also those of a dry run, for the duration of
// a scope:
//
//   CommRecord record;
//   model(x);
//   for (const CommEvent& e : record.events()) bytes += e.counted;
//
// Records nest: an outer record also has the events of the inner ones. Throws
// Error outside run().
class CommRecord {
 public:
  CommRecord();
  ~CommRecord();
  CommRecord(const CommRecord&) = delete;
  CommRecord& operator=(const CommRecord&) = delete;
  // The events since this record was made. The span is valid until another
  // event is recorded, or this record ends.
  std::span<const CommEvent> events() const;

 private:
  RankContext& context_;
  const bool outer_;
  const size_t first_;
};

}  // namespace dtensor
