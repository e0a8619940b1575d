// What was sent, put together from the events of all ranks.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "dtensor/rank_context.h"

namespace dtensor {

// All collectives of one kind over the same axes for one operator: what a rank
// takes part in and receives, each of these numbers of the rank with the most.
struct CommRow {
  std::string axis;  // "tp", or "dp,tp" for a collective over both
  std::string kind, op, phase;
  int64_t count = 0;
  int64_t predicted = 0, counted = 0;  // bytes
  bool operator==(const CommRow&) const = default;
};

// One list for all ranks, in the order of the first rank that has the event:
// the n-th event of a sort (axes, kind, op, phase) on one rank is the n-th on
// the others, and its bytes are the most that any of them has.
std::vector<CommEvent> merge_events(
    std::span<const std::vector<CommEvent>> ranks);

// The same of all ranks of the run, whatever process they are in, from each
// one's events. Collective; on every rank. In a dry run the caller's alone.
std::vector<CommEvent> merge_events(std::span<const CommEvent> mine);

// Merged events by who received: a list for each set of ranks that are in the
// same of their meshes (a stage of a pipeline, say), in order. An event is in
// the list of every rank of its mesh, which is the one that things came to.
std::vector<std::vector<CommEvent>> events_by_rank(
    std::span<const CommEvent> merged);
// The most bytes of all these events that a rank receives, as predicted.
int64_t most_received(std::span<const CommEvent> merged);

// Merged events summed up, in order of first appearance. Tensors that moved in
// one collective count as one.
std::vector<CommRow> comm_rows(std::span<const CommEvent> merged);

// An aligned table of these rows. Its last line is their total; where no rank
// has the most of every row, it is a rank's most of all of them. `counted`:
// with that column.
std::string comm_table(std::span<const CommEvent> merged, bool counted);

// [{"axis", "kind", "op", "phase", "count", "bytes_predicted",
// "bytes_counted"}, ...]; the last only when `counted`.
nlohmann::ordered_json comm_json(std::span<const CommRow>, bool counted);

}  // namespace dtensor
