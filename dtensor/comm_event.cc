// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_event.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "dtensor/rank_context.h"

namespace dtensor {
namespace {

// The number of CommRecords that exist on this thread. (RunOptions::record,
// which records a whole run, makes no CommRecord.)
thread_local int records = 0;

// Replaces the events with the same mesh, axes, kind, operator and phase by one
// event with the sums of their bytes, in the order of first appearance. `times`
// then counts the collectives, so that the totals of tables (comm_table.h) stay
// the same.
void sum_up(std::vector<CommEvent>& events) {
  std::vector<CommEvent> sums;
  std::map<std::tuple<uint64_t, AxisMask, StepKind, std::string, std::string>,
           size_t>
      places;
  std::set<std::pair<size_t, int64_t>> counted;  // pairs (place, collective)
  for (CommEvent& e : events) {
    const auto [at, is_new] = places.try_emplace(
        {e.mesh.hash(), e.axes, e.kind, e.op, e.phase}, sums.size());
    const bool first =
        !e.collective || counted.insert({at->second, e.collective}).second;
    if (is_new)
      sums.push_back({.mesh = e.mesh,
                      .axes = e.axes,
                      .kind = e.kind,
                      .op = std::move(e.op),
                      .phase = std::move(e.phase),
                      .predicted = 0,
                      .counted = 0,
                      .times = 0});
    CommEvent& sum = sums[at->second];
    sum.predicted += e.predicted;
    sum.counted += e.counted;
    sum.times += first ? e.times : 0;
    sum.by_all += e.by_all;
  }
  events = std::move(sums);
}

}  // namespace

CommRecord::CommRecord()
    : context_(RankContext::current()),
      outer_(context_.record),
      first_(outer_ ? context_.events.size() : 0) {
  if (!outer_) context_.events.clear();
  context_.record = true;
  ++records;
}

CommRecord::~CommRecord() {
  context_.record = outer_;
  --records;
  // A run that records from the beginning, as with --json, may be long. It
  // needs only sums of its events, unless an observer reads them.
  if (outer_ && records == 0 && !context_.observers.read_events(context_))
    sum_up(context_.events);
}

std::span<const CommEvent> CommRecord::events() const {
  const std::span<const CommEvent> all = context_.events;
  return all.subspan(std::min(first_, all.size()));
}

}  // namespace dtensor
