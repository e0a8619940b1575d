// SPDX-License-Identifier: Apache-2.0
// The outputs of a trace: its file, and the waiting times as a table and as
// JSON.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "dtensor/comm/agreement.h"
#include "dtensor/placement/error.h"
#include "dtensor/text_file.h"
#include "dtensor/text_table.h"
#include "dtensor/trace.h"
#include "dtensor/tracer.h"

namespace dtensor {
namespace {

// The time `ns` in microseconds, with three decimals.
std::string micros(int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false,
                                   nlohmann::json::error_handler_t::replace);
}

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

constexpr const char* kThreads[] = {"own thread", "redistribute_async"};

}  // namespace

struct Trace::Arrow {
  const Tracer *last, *waiter;
  // The events of the collective: the last member's, and the waiter's.
  const Tracer::Event *from, *to;
  int64_t ns() const { return from->begin - to->begin; }
};

std::vector<Trace::Arrow> Trace::arrows() const {
  // One member's event of a collective. All members' events have equal key()s.
  struct View {
    int64_t run, lane;
    const std::vector<int64_t>* ranks;
    const Tracer* tracer;
    const Tracer::Event* event;
    auto key() const { return std::tie(run, lane, *ranks, event->number); }
  };
  std::vector<View> views;
  for (const auto& t : tracers_)
    for (const Tracer::Event& e : t->events_)
      if (e.sort == Tracer::Sort::kCollective && e.agreed >= 0 &&
          e.group < t->groups_.size())
        views.push_back(
            {t->whose_.run, t->whose_.lane, &t->groups_[e.group], t.get(), &e});
  std::stable_sort(
      views.begin(), views.end(),
      [](const View& a, const View& b) { return a.key() < b.key(); });
  std::vector<Arrow> all;
  for (size_t first = 0, end; first < views.size(); first = end) {
    size_t last = first;
    for (end = first;
         end < views.size() && views[end].key() == views[first].key(); ++end)
      if (views[end].event->begin > views[last].event->begin) last = end;
    // (The last member is unknown if some members' events were dropped.)
    if (end - first != views[first].ranks->size()) continue;
    for (size_t i = first; i < end; ++i) {
      const Arrow a{views[last].tracer, views[i].tracer, views[last].event,
                    views[i].event};
      // (Waits shorter than the uncertainty of the clocks are left out.)
      const int64_t unsure = a.last->within_ + a.waiter->within_;
      if (a.ns() > unsure && a.from->begin <= a.to->agreed + unsure)
        all.push_back(a);
    }
  }
  return all;
}

int64_t Trace::kept() const {
  int64_t n = 0;
  for (const auto& t : tracers_) n += std::ssize(t->events_);
  return n;
}

int64_t Trace::dropped() const {
  int64_t n = 0;
  for (const auto& t : tracers_) n += t->dropped_;
  return n;
}

double Trace::dropped_from() const {
  int64_t from = -1;
  for (const auto& t : tracers_)
    if (t->dropped_from_ >= 0 && (from < 0 || t->dropped_from_ < from))
      from = t->dropped_from_;
  return seconds(std::max<int64_t>(from, 0));
}

// The event as JSON for Chrome's viewer: a complete event, whose "ph" is "X".
std::string Tracer::to_json(const Event& e) const {
  const auto text = [&](uint32_t i) { return json_text(texts_[i]); };
  std::string args = fmt::format("\"phase\":{}", text(e.phase));
  if (e.path) args += fmt::format(",\"module\":{}", text(e.path));
  if (e.op) args += fmt::format(",\"op\":{}", text(e.op));
  if (e.layouts) args += fmt::format(",\"layouts\":{}", text(e.layouts));
  std::string_view sort = "span";
  switch (e.sort) {
    case Sort::kSpan:
      if (e.number >= 0) args += fmt::format(",\"number\":{}", e.number);
      break;
    case Sort::kOp:
      sort = "operator";
      args += fmt::format(",\"predicted bytes\":{},\"ordinal\":{}", e.bytes,
                          e.number);
      break;
    case Sort::kCollective:
      sort = "collective";
      args += fmt::format(",\"received bytes\":{},\"sequence\":{}", e.bytes,
                          e.number);
      if (e.group < groups_.size())
        args +=
            fmt::format(",\"ranks\":\"{}\"", ranks_to_string(groups_[e.group]));
      if (e.agreed >= 0)
        args += fmt::format(",\"waited us\":{}", micros(e.agreed - e.begin));
      if (e.threw) args += ",\"threw\":true";
  }
  return fmt::format(
      "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},"
      "\"name\":{},\"cat\":\"{}\",\"args\":{{{}}}}}",
      whose_.rank, whose_.lane, micros(e.begin), micros(e.end - e.begin),
      text(e.name), sort, args);
}

void Trace::write(const std::string& path) const {
  // An entry in the track of a thread: an event, or one end of an Arrow.
  struct Mark {
    int64_t at, end;
    const Tracer* tracer;
    const Tracer::Event* event;
    int64_t arrow = 0;
    bool starts = false;
  };
  std::map<std::pair<int64_t, int64_t>, std::vector<Mark>> tracks;
  for (const auto& t : tracers_) {
    std::vector<Mark>& track = tracks[{t->whose_.rank, t->whose_.lane}];
    // Inner events were recorded before the events around them. Reverse this.
    for (auto e = t->events_.rbegin(); e != t->events_.rend(); ++e)
      track.push_back({e->begin, e->end, t.get(), &*e});
  }
  int64_t number = 0;
  for (const Arrow& a : arrows()) {
    // The arrow of a wait below 1 us would be too short to be visible.
    if (a.ns() < 1000) continue;
    ++number;
    const auto add = [&](const Tracer& t, int64_t at, bool starts) {
      tracks[{t.whose_.rank, t.whose_.lane}].push_back(
          {at, at, &t, nullptr, number, starts});
    };
    add(*a.last, a.from->begin, true);
    add(*a.waiter, std::max(a.from->begin, a.to->agreed), false);
  }
  TextWriter file("trace", path);
  const auto put = [&](std::string_view text) { file.put(text); };
  put("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  std::string_view comma = "\n";
  for (auto& [track, marks] : tracks) {
    const auto [rank, lane] = track;
    for (const auto& [what, name] :
         {std::pair("process_name", fmt::format("rank {}", rank)),
          std::pair("thread_name", std::string(kThreads[lane]))})
      put(
          fmt::format("{}{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\","
                      "\"args\":{{\"name\":\"{}\"}}}}",
                      std::exchange(comma, ",\n"), rank, lane, what, name));
    // Events that enclose others come first.
    std::stable_sort(marks.begin(), marks.end(),
                     [](const Mark& a, const Mark& b) {
                       return std::tie(a.at, b.end) < std::tie(b.at, a.end);
                     });
    for (const Mark& m : marks) {
      put(",\n");
      put(m.event ? m.tracer->to_json(*m.event)
                  : fmt::format(
                        "{{{},\"pid\":{},\"tid\":{},\"ts\":{},"
                        "\"id\":{},\"name\":\"waited for\","
                        "\"cat\":\"waiting\"}}",
                        m.starts ? "\"ph\":\"s\"" : "\"ph\":\"f\",\"bp\":\"e\"",
                        rank, lane, micros(m.at), m.arrow));
    }
  }
  put(fmt::format("\n],\"otherData\":{{\"events not kept\":{}}}}}\n",
                  dropped()));
  file.commit();
}

std::vector<Trace::Waiting> Trace::waiting() const {
  struct Sum {
    Waiting row;
    std::map<int64_t, int64_t> lost_to;
  };
  using Key = std::tuple<std::string, std::string, int64_t>;
  std::map<Key, Sum> sums;
  int64_t all = 0;
  for (const auto& t : tracers_) {
    if (t->whose_.lane == 0) all += t->whose_.closed - t->whose_.opened;
    for (const auto& [key, w] : t->waits_) {
      const std::string &op = t->texts_[key >> 32],
                        &phase = t->texts_[key & 0xffffffff];
      Waiting& row = sums[{op, phase, t->whose_.lane}].row;
      row.op = op;
      row.phase = phase;
      row.other_thread = t->whose_.lane == 1;
      row.collectives += w.collectives;
      row.seconds += seconds(w.ns);
      row.longest = std::max(row.longest, seconds(w.longest));
    }
  }
  for (const Arrow& a : arrows())
    sums[{a.waiter->texts_[a.to->op], a.waiter->texts_[a.to->phase],
          a.waiter->whose_.lane}]
        .lost_to[a.last->whose_.rank] += a.ns();
  std::vector<Waiting> rows;
  for (auto& [key, sum] : sums) {
    if (all > 0) sum.row.share = sum.row.seconds / seconds(all);
    int64_t most = 0;
    for (const auto& [rank, ns] : sum.lost_to)
      if (ns > most) {
        most = ns;
        sum.row.last = rank;
      }
    rows.push_back(std::move(sum.row));
  }
  std::stable_sort(
      rows.begin(), rows.end(),
      [](const Waiting& a, const Waiting& b) { return a.seconds > b.seconds; });
  return rows;
}

std::string Trace::waiting_table() const {
  constexpr size_t kMost = 12;
  TextTable table("lllrrrrr",
                  {"phase", "op", "thread", "collectives", "waited ms",
                   "longest ms", "of the time", "for rank"});
  const auto add = [&](const Waiting& w, const std::string& op) {
    table.add({w.phase, op, w.op.empty() ? "" : kThreads[w.other_thread],
               grouped(w.collectives), fmt::format("{:.3f}", 1e3 * w.seconds),
               fmt::format("{:.3f}", 1e3 * w.longest),
               fmt::format("{:.1f} %", 100 * w.share),
               w.last < 0 ? "" : std::to_string(w.last)});
  };
  Waiting rest{}, total{};
  const std::vector<Waiting> rows = waiting();
  for (size_t i = 0; i < rows.size(); ++i) {
    for (Waiting* sum : {&total, &rest}) {
      if (sum == &rest && i < kMost) continue;
      sum->collectives += rows[i].collectives;
      sum->seconds += rows[i].seconds;
      sum->longest = std::max(sum->longest, rows[i].longest);
      sum->share += rows[i].share;
    }
    if (i < kMost) add(rows[i], rows[i].op);
  }
  rest.last = total.last = -1;
  if (rows.size() > kMost)
    add(rest, fmt::format("({} others)", rows.size() - kMost));
  add(total, "total");
  return table.to_string();
}

nlohmann::ordered_json Trace::waiting_json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Waiting& w : waiting()) {
    json.push_back({{"op", w.op},
                    {"phase", w.phase},
                    {"thread", kThreads[w.other_thread]},
                    {"collectives", w.collectives},
                    {"seconds", w.seconds},
                    {"longest_seconds", w.longest},
                    {"share", w.share},
                    {"waited_for", nullptr}});
    if (w.last >= 0) json.back()["waited_for"] = w.last;
  }
  return json;
}

}  // namespace dtensor
