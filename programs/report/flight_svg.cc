// SPDX-License-Identifier: Apache-2.0
#include "programs/report/flight_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "programs/report/svg.h"

namespace dtensor::report {
namespace {

constexpr double kMargin = 24, kLabel = 110, kTitles = 190, kColumn = 24,
                 kBar = 20, kRow = 26, kKey = 40;
constexpr const char* kSame = "#7fb2e5";
constexpr const char* kOther = "#f2b880";
constexpr const char* kRed = "#c0392b";
constexpr const char* kMissing =
    R"(fill="#fff" stroke="#c0392b" stroke-width="2" stroke-dasharray="4 3")";

// The style of a member's bar: blue if the call is the same as `first`, the
// call of the first member; hollow if the call waits for members or threw.
std::string style(const FlightCall& call, const FlightCall& first) {
  const char* colour = call.fingerprint == first.fingerprint ? kSame : kOther;
  const bool all_came = call.state == "ended" || call.state == "agreed";
  return fmt::format(R"(fill="{}" stroke="{}" stroke-width="2")",
                     all_came ? colour : "#fff", colour);
}

}  // namespace

std::string flight_svg(const FlightReport& report, int64_t most) {
  std::vector<const FlightRow*> columns;
  for (const FlightRow& row : report.rows) columns.push_back(&row);
  std::stable_sort(columns.begin(), columns.end(),
                   [](const FlightRow* a, const FlightRow* b) {
                     return a->first_ns < b->first_ns;
                   });
  if (columns.size() > static_cast<size_t>(most))
    columns.erase(columns.begin(), columns.end() - most);
  // The y coordinate of each thread's row.
  std::map<std::pair<int64_t, int>, double> rows;
  double y = kMargin + kTitles;
  for (const FlightFile& f : report.files)
    for (int lane = 0; lane < 2; ++lane) {
      if (lane == 1 && f.lanes[1].empty()) continue;
      rows[{f.rank, lane}] = y;
      y += kRow;
    }
  const double width =
      2 * kMargin + kLabel +
      std::max(kColumn * static_cast<double>(columns.size()), 420.0);
  Svg svg(width, "the last collectives of every rank");
  for (const auto& [thread, top] : rows)
    svg.text(
        kMargin, top + 15, 13,
        fmt::format("rank {}{}", thread.first, thread.second ? ", async" : ""));
  double x = kMargin + kLabel;
  for (const FlightRow* column : columns) {
    const FlightCall* first = nullptr;
    for (const FlightRow::Member& m : column->members) {
      if (!m.call) continue;
      if (!first) first = m.call;
      svg.rect(x, rows.at({m.rank, column->lane}), kColumn - 6, kBar,
               style(*m.call, *first),
               fmt::format("rank {}: {}, {}", m.rank, m.call->to_string(),
                           m.call->state));
    }
    for (int64_t r : column->missing)
      if (const auto at = rows.find({r, column->lane}); at != rows.end())
        svg.rect(
            x, at->second, kColumn - 6, kBar, kMissing,
            fmt::format("rank {} never reached {}", r, first->to_string()));
    const bool fault = column->parts || !column->missing.empty();
    svg.text_up(
        x + 13, kMargin + kTitles - 8, 12,
        fmt::format("{} #{} {}", first->kind, column->sequence, first->op),
        fault ? fmt::format(R"(fill="{}" font-weight="bold")", kRed) : "");
    x += kColumn;
  }
  x = kMargin;
  y += 14;
  for (const auto& [look, what] :
       {std::pair(fmt::format(R"(fill="{}")", kSame), "the same call"),
        std::pair(fmt::format(R"(fill="{}")", kOther), "another call"),
        std::pair(
            fmt::format(R"(fill="#fff" stroke="{}" stroke-width="2")", kSame),
            "not all arrived"),
        std::pair(std::string(kMissing), "never arrived")}) {
    svg.rect(x, y, 12, 12, look);
    svg.text(x + 18, y + 11, 12, what);
    x += 36 + text_width(what, 12);
  }
  return svg.finish(y + kKey);
}

}  // namespace dtensor::report
