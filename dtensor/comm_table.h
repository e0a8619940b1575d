// SPDX-License-Identifier: Apache-2.0
// Totals of what ranks send, hold and compute, and tables of their
// communication. The tables of --json and of a record are made from them.
#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dtensor/comm_event.h"
#include "dtensor/memory_kind.h"
#include "dtensor/placement/cost.h"

namespace dtensor {

class Allocator;

// All collectives of one kind over the same axes, for one operator in one
// phase. Each number is the largest of any rank.
struct CommRow {
  std::string axis;  // "tp", or "dp,tp" for a collective over both
  std::string kind, op, phase;
  int64_t count = 0;                   // collectives that a rank takes part in
  int64_t predicted = 0, counted = 0;  // bytes that a rank receives
  bool operator==(const CommRow&) const = default;
};

// Merges the ranks' events into one list, ordered as on the first rank that has
// the event. The n-th event with one mesh, axes, kind, op and phase is the same
// event on all ranks; its bytes are the largest of any rank.
std::vector<CommEvent> merge_events(
    std::span<const std::vector<CommEvent>> ranks);

// Merges the events of all ranks of the run, from the events of each. Returns
// the same list on every rank. Collective over all ranks of the run. In a dry
// run, merges only the caller's.
std::vector<CommEvent> merge_events(std::span<const CommEvent> mine);

// The most bytes that a rank holds: of each MemoryKind, and of all kinds
// together. (The maxima need not occur at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
};
MemoryUse memory_use(const Allocator&);

struct Totals {
  std::vector<CommEvent> events;
  MemoryUse memory = {};
  int64_t work_ps = 0;  // of a rank's operators, by their prices
};
// The totals of several ranks together: their events merged, and the largest of
// each other number.
Totals merge(std::span<const Totals> ranks);
// The same for all ranks of the run, on every rank. Collective over them. In a
// dry run, only the caller's.
Totals merge(const Totals& mine);

// Splits merged events by receiver: one list for each set of ranks that belong
// to the same meshes (a stage of a pipeline, say), in order. An event is in the
// list of every rank of its mesh, which is the destination's mesh.
std::vector<std::vector<CommEvent>> events_by_rank(
    std::span<const CommEvent> merged);
// The largest sum of predicted bytes that any rank receives in these events.
int64_t most_received(std::span<const CommEvent> merged);

// The time in ps of an event under these prices. Tensors that are moved
// together in one collective pay its latency once: `paid` has the collectives
// whose latency is counted already, and gets this one.
int64_t price(const CommEvent&, const CostTable&, std::set<int64_t>& paid);
// The time in ps that the collectives take on the rank where they take longest,
// as if nothing overlapped.
int64_t communication_ps(std::span<const CommEvent> merged, const CostTable&);

// Sums up merged events, in order of first appearance. Tensors that moved in
// one collective count as one.
std::vector<CommRow> comm_rows(std::span<const CommEvent> merged);

// An aligned table of these rows; `counted` adds the column of counted bytes.
// The last line is the total over all rows, or, if no single rank has the
// largest numbers of every row, the largest total of any rank.
std::string comm_table(std::span<const CommEvent> merged, bool counted);

// [{"axis", "kind", "op", "phase", "count", "bytes_predicted",
// "bytes_counted"}, ...]; "bytes_counted" only if `counted`.
nlohmann::ordered_json comm_json(std::span<const CommRow>, bool counted);

}  // namespace dtensor
