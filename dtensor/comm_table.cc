// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm_table.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/rank_context.h"
#include "dtensor/text_table.h"

namespace dtensor {
namespace {

auto sort_of(const CommEvent& e) {
  return std::tuple(e.mesh.hash(), e.axes, e.kind, e.op, e.phase);
}

std::string pack(std::span<const CommEvent> events) {
  auto list = nlohmann::ordered_json::array();
  for (const CommEvent& e : events)
    list.push_back({e.mesh.to_string(), e.axes, static_cast<int>(e.kind), e.op,
                    e.phase, e.predicted, e.counted, e.collective, e.times,
                    e.by_all});
  return list.dump();
}
std::vector<CommEvent> unpack(const std::string& text) {
  std::vector<CommEvent> events;
  std::map<std::string, Mesh> meshes;
  for (const nlohmann::ordered_json& e : nlohmann::ordered_json::parse(text)) {
    const std::string mesh = e[0];
    const auto it = meshes.try_emplace(mesh, Mesh::parse(mesh)).first;
    CommEvent event{it->second, e[1], static_cast<StepKind>(e[2].get<int>()),
                    e[3],       e[4], e[5],
                    e[6],       e[7], e[8]};
    event.by_all = e[9];
    events.push_back(std::move(event));
  }
  return events;
}

using RowKey = std::tuple<std::string, StepKind, std::string, std::string>;
RowKey row_of(const CommEvent& e) {
  return {e.axes ? e.mesh.axes_to_string(e.axes) : "between meshes", e.kind,
          e.op, e.phase};
}

CommRow empty_row(const RowKey& key) {
  const auto& [axis, kind, op, phase] = key;
  return {axis, std::string(name(kind)), op, phase, 0, 0, 0};
}

// Sums up the events of one rank.
std::map<RowKey, CommRow> sums(std::span<const CommEvent> events) {
  std::map<RowKey, CommRow> rows;
  std::set<std::pair<const CommRow*, int64_t>> counted;  // (row, collective)
  for (const CommEvent& e : events) {
    const RowKey key = row_of(e);
    CommRow& row = rows.try_emplace(key, empty_row(key)).first->second;
    if (!e.collective || counted.insert({&row, e.collective}).second)
      row.count += e.times;
    row.predicted += e.predicted;
    row.counted += e.counted;
  }
  return rows;
}

void add(CommRow& sum, const CommRow& r) {
  sum.count += r.count;
  sum.predicted += r.predicted;
  sum.counted += r.counted;
}

void raise(CommRow& most, const CommRow& r) {
  most.count = std::max(most.count, r.count);
  most.predicted = std::max(most.predicted, r.predicted);
  most.counted = std::max(most.counted, r.counted);
}

// Adds up the rows of each rank. Each number is the largest sum of any rank.
CommRow most_of_all(std::span<const CommEvent> merged) {
  CommRow most;
  for (const std::vector<CommEvent>& list : events_by_rank(merged)) {
    CommRow sum;
    for (const auto& [key, row] : sums(list)) add(sum, row);
    raise(most, sum);
  }
  return most;
}

}  // namespace

std::vector<CommEvent> merge_events(std::span<const CommEvent> mine) {
  std::vector<std::vector<CommEvent>> ranks;
  const RankContext& context = RankContext::current();
  if (context.dry_run || context.world_size == 1) {
    // No messages are needed. Like events that came in a message, these name no
    // execution, so that the list keeps no execution alive.
    ranks.emplace_back(mine.begin(), mine.end());
    for (CommEvent& e : ranks[0]) e.execution = nullptr, e.place = 0;
    return merge_events(ranks);
  }
  for (const std::string& text :
       all_gather_bytes("merge_events", 0, pack(mine)))
    ranks.push_back(unpack(text));
  return merge_events(ranks);
}

std::vector<CommEvent> merge_events(
    std::span<const std::vector<CommEvent>> ranks) {
  std::vector<CommEvent> merged;
  using Sort = decltype(sort_of(merged[0]));
  // For each sort: the indices in `merged` of its events, in their order.
  std::map<Sort, std::vector<size_t>> places;
  int64_t collectives = 0;
  for (const std::vector<CommEvent>& events : ranks) {
    std::map<Sort, size_t> seen;
    // Maps this rank's numbers of collectives to the numbers in `merged`.
    std::map<int64_t, int64_t> numbers;
    const auto add = [&](const CommEvent& e) {
      merged.push_back(e);
      if (!e.collective) return;
      int64_t& number = numbers[e.collective];
      if (!number) number = ++collectives;
      merged.back().collective = number;
    };
    if (ranks.size() == 1) {  // all events are new
      for (const CommEvent& e : events) add(e);
      break;
    }
    for (const CommEvent& e : events) {
      std::vector<size_t>& at = places[sort_of(e)];
      const size_t ordinal = seen[sort_of(e)]++;
      if (ordinal == at.size()) {
        at.push_back(merged.size());
        add(e);
        continue;
      }
      CommEvent& m = merged[at[ordinal]];
      m.predicted = std::max(m.predicted, e.predicted);
      m.counted = std::max(m.counted, e.counted);
    }
  }
  return merged;
}

std::vector<std::vector<CommEvent>> events_by_rank(
    std::span<const CommEvent> merged) {
  std::vector<Mesh> meshes;
  std::map<uint64_t, size_t> known;  // from hash to index in `meshes`
  for (const CommEvent& e : merged)
    if (known.try_emplace(e.mesh.hash(), meshes.size()).second)
      meshes.push_back(e.mesh);
  // For each rank, whether it is in each mesh.
  std::map<int64_t, std::vector<bool>> in;
  for (size_t m = 0; m < meshes.size(); ++m)
    for (int64_t r = 0; r < meshes[m].num_ranks(); ++r) {
      std::vector<bool>& flags = in[meshes[m].world_rank(r)];
      flags.resize(meshes.size());
      flags[m] = true;
    }
  std::set<std::vector<bool>> seen;
  std::vector<std::vector<CommEvent>> lists;
  for (const auto& [rank, flags] : in) {
    if (!seen.insert(flags).second) continue;
    lists.emplace_back();
    for (const CommEvent& e : merged)
      if (flags[known.at(e.mesh.hash())]) lists.back().push_back(e);
  }
  return lists;
}

int64_t most_received(std::span<const CommEvent> merged) {
  return most_of_all(merged).predicted;
}

int64_t price(const CommEvent& e, const CostTable& cost,
              std::set<int64_t>& paid) {
  const bool first = !e.collective || paid.insert(e.collective).second;
  // Transfers between meshes are priced like collectives over all axes.
  const AxisMask axes = e.axes ? e.axes : e.mesh.all_axes();
  return cost.collective_ps(e.kind, axes, e.predicted) +
         cost.link(e.kind, axes).alpha_ps * (first ? e.times - 1 : -1);
}

int64_t communication_ps(std::span<const CommEvent> merged,
                         const CostTable& cost) {
  int64_t most = 0;
  for (const std::vector<CommEvent>& list : events_by_rank(merged)) {
    int64_t ps = 0;
    std::set<int64_t> paid;
    for (const CommEvent& e : list) ps += price(e, cost, paid);
    most = std::max(most, ps);
  }
  return most;
}

std::vector<CommRow> comm_rows(std::span<const CommEvent> merged) {
  std::vector<CommRow> rows;
  std::map<RowKey, size_t> places;
  for (const CommEvent& e : merged)
    if (places.try_emplace(row_of(e), rows.size()).second)
      rows.push_back(empty_row(row_of(e)));
  for (const std::vector<CommEvent>& list : events_by_rank(merged))
    for (const auto& [key, row] : sums(list)) raise(rows[places.at(key)], row);
  return rows;
}

std::string comm_table(std::span<const CommEvent> merged, bool counted) {
  std::string align = "llllrr";
  std::vector<std::string> titles = {"phase", "op",    "axis",
                                     "kind",  "count", "bytes"};
  if (counted) {
    align += 'r';
    titles.back() += " predicted";
    titles.push_back("counted");
  }
  TextTable table(align, std::move(titles));
  const auto line = [&](const CommRow& r) {
    std::vector<std::string> cells = {
        r.phase, r.op, r.axis, r.kind, grouped(r.count), grouped(r.predicted)};
    if (counted) cells.push_back(grouped(r.counted));
    table.add(std::move(cells));
  };
  CommRow sum, most = most_of_all(merged);
  for (const CommRow& r : comm_rows(merged)) {
    line(r);
    add(sum, r);
  }
  sum.phase = most.phase = "total";
  if (sum != most) most.phase = "maximum of a rank";
  line(most);
  return table.to_string();
}

nlohmann::ordered_json comm_json(std::span<const CommRow> rows, bool counted) {
  auto list = nlohmann::ordered_json::array();
  for (const CommRow& r : rows) {
    nlohmann::ordered_json row = {
        {"axis", r.axis},   {"kind", r.kind},
        {"op", r.op},       {"phase", r.phase},
        {"count", r.count}, {"bytes_predicted", r.predicted}};
    if (counted) row["bytes_counted"] = r.counted;
    list.push_back(std::move(row));
  }
  return list;
}

}  // namespace dtensor
