#include "dtensor/runtime/comm_table.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "dtensor/runtime/all_gather_bytes.h"
#include "dtensor/runtime/text_table.h"

namespace dtensor {
namespace {

auto sort_of(const CommEvent& e) {
  return std::tuple(e.mesh.hash(), e.axes, e.kind, e.op, e.phase);
}

std::string pack(std::span<const CommEvent> events) {
  auto list = nlohmann::json::array();
  for (const CommEvent& e : events)
    list.push_back({e.mesh.to_string(), e.axes, static_cast<int>(e.kind), e.op,
                    e.phase, e.predicted, e.counted, e.collective, e.times});
  return list.dump();
}
std::vector<CommEvent> unpack(const std::string& text) {
  std::vector<CommEvent> events;
  std::map<std::string, Mesh> meshes;
  for (const nlohmann::json& e : nlohmann::json::parse(text)) {
    const std::string mesh = e[0];
    const auto it = meshes.try_emplace(mesh, Mesh::parse(mesh)).first;
    events.push_back({it->second, e[1], static_cast<StepKind>(e[2].get<int>()),
                      e[3], e[4], e[5], e[6], e[7], e[8]});
  }
  return events;
}

}  // namespace

std::vector<CommEvent> merge_events(std::span<const CommEvent> mine) {
  std::vector<std::vector<CommEvent>> ranks;
  for (const std::string& text :
       all_gather_bytes("merge_events", 0, pack(mine)))
    ranks.push_back(unpack(text));
  return merge_events(ranks);
}

std::vector<CommEvent> merge_events(
    std::span<const std::vector<CommEvent>> ranks) {
  std::vector<CommEvent> merged;
  using Sort = decltype(sort_of(merged[0]));
  std::map<Sort, std::vector<size_t>> places;  // in `merged`, by ordinal
  int64_t collectives = 0;
  for (const std::vector<CommEvent>& events : ranks) {
    std::map<Sort, size_t> seen;
    std::map<int64_t, int64_t> numbers;  // of the rank's, among all
    for (const CommEvent& e : events) {
      std::vector<size_t>& at = places[sort_of(e)];
      const size_t ordinal = seen[sort_of(e)]++;
      if (ordinal == at.size()) {
        at.push_back(merged.size());
        merged.push_back(e);
        if (e.collective) {
          int64_t& number = numbers[e.collective];
          if (!number) number = ++collectives;
          merged.back().collective = number;
        }
        continue;
      }
      CommEvent& m = merged[at[ordinal]];
      m.predicted = std::max(m.predicted, e.predicted);
      m.counted = std::max(m.counted, e.counted);
    }
  }
  return merged;
}

std::vector<CommRow> comm_rows(std::span<const CommEvent> merged) {
  std::vector<CommRow> rows;
  std::map<std::tuple<std::string, StepKind, std::string, std::string>, size_t>
      places;
  std::set<std::pair<size_t, int64_t>> counted;  // rows and collectives
  for (const CommEvent& e : merged) {
    const std::string axis =
        e.axes ? e.mesh.axes_to_string(e.axes) : "between meshes";
    auto [it, fresh] =
        places.try_emplace({axis, e.kind, e.op, e.phase}, rows.size());
    if (fresh)
      rows.push_back({axis, std::string(name(e.kind)), e.op, e.phase, 0, 0, 0});
    CommRow& row = rows[it->second];
    if (!e.collective || counted.insert({it->second, e.collective}).second)
      row.count += e.times;
    row.predicted += e.predicted;
    row.counted += e.counted;
  }
  return rows;
}

std::string comm_table(std::span<const CommRow> rows, bool counted) {
  std::string align = "llllrr";
  std::vector<std::string> titles = {"phase", "op",    "axis",
                                     "kind",  "count", "bytes"};
  if (counted) {
    align += 'r';
    titles.back() += " predicted";
    titles.push_back("counted");
  }
  TextTable table(align, std::move(titles));
  CommRow total;
  for (const CommRow& r : rows) {
    std::vector<std::string> line = {
        r.phase, r.op, r.axis, r.kind, grouped(r.count), grouped(r.predicted)};
    if (counted) line.push_back(grouped(r.counted));
    table.add(std::move(line));
    total.count += r.count;
    total.predicted += r.predicted;
    total.counted += r.counted;
  }
  std::vector<std::string> line = {
      "total", "", "", "", grouped(total.count), grouped(total.predicted)};
  if (counted) line.push_back(grouped(total.counted));
  table.add(std::move(line));
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
