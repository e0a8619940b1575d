// SPDX-License-Identifier: Apache-2.0
// Totals of the bytes that ranks receive and hold, and of the price of their
// local work. Tables of their communication. Programs print these, write them
// as JSON (--json), and put them into a record (program/record.h).
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

// The sum of all collectives of one kind over the same axes, for one operator
// in one phase. Each number is the largest that any rank has.
struct CommRow {
  std::string axis;  // "tp", "dp,tp" (over both axes), or "between meshes"
  std::string kind, op, phase;
  int64_t count = 0;                   // collectives that a rank takes part in
  int64_t predicted = 0, counted = 0;  // bytes that a rank receives
  bool operator==(const CommRow&) const = default;
};

// Merges the events of several ranks into one list. The n-th event with a given
// mesh, axes, kind, op and phase counts as the same event on all ranks, and its
// bytes are the largest of any rank. The first rank's events come first, in
// their order, then those that only the second rank has, and so on.
std::vector<CommEvent> merge_events(
    std::span<const std::vector<CommEvent>> ranks);

// Merges the events of all ranks of the run: each passes its own, and all get
// the same list. Collective over all ranks of the run. In a dry run, the list
// has only the caller's events.
std::vector<CommEvent> merge_events(std::span<const CommEvent> mine);

// The most bytes that a rank holds: of each MemoryKind, and of all kinds
// together, on its device. (The maxima need not occur at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
  int64_t host = 0;  // host memory for tensors of a GPU
};
MemoryUse memory_use(const Allocator&);

struct Totals {
  std::vector<CommEvent> events;
  MemoryUse memory = {};
  int64_t work_ps = 0;  // the price of the local work of a rank's operators
};
// Merges the totals of several ranks: their events are merged, and each other
// number is the largest of any rank.
Totals merge(std::span<const Totals> ranks);
// Merges the totals of all ranks of the run: each passes its own, and all get
// the same result. Collective over all ranks of the run. In a dry run, the
// result has only the caller's totals.
Totals merge(const Totals& mine);

// Splits merged events by the ranks that receive. Ranks that belong to the same
// meshes (a stage of a pipeline, say) share one list. The lists are in the
// order of their lowest ranks. An event is in the lists of all ranks of its
// mesh; a move between two meshes has the destination's mesh.
std::vector<std::vector<CommEvent>> events_by_rank(
    std::span<const CommEvent> merged);
// The largest sum of predicted bytes that any rank receives in these events.
int64_t most_received(std::span<const CommEvent> merged);

// The time in ps of an event under these prices. Tensors that are moved
// together in one collective pay its latency once: `paid` has the numbers of
// the collectives whose latency is counted already. price() adds the number of
// this event's collective to it.
int64_t price(const CommEvent&, const CostTable&, std::set<int64_t>& paid);
// The time in ps that the collectives take on the rank where they take longest,
// as if nothing overlapped.
int64_t communication_ps(std::span<const CommEvent> merged, const CostTable&);

// Sums up merged events in rows, which are in the order of their first events.
// Tensors that moved in one collective count as one collective.
std::vector<CommRow> comm_rows(std::span<const CommEvent> merged);

// Returns comm_rows() as an aligned table; `counted` adds the column of counted
// bytes. The last line, "total", adds up the rows. If no rank has that total,
// because different ranks have the largest numbers of different rows, the line
// is instead "maximum of a rank": the largest total that any rank has.
std::string comm_table(std::span<const CommEvent> merged, bool counted);

// Returns [{"axis", "kind", "op", "phase", "count", "bytes_predicted",
// "bytes_counted"}, ...], with "bytes_counted" only if `counted`.
nlohmann::ordered_json comm_json(std::span<const CommRow>, bool counted);

}  // namespace dtensor
