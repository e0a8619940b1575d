// SPDX-License-Identifier: Apache-2.0
#include "programs/report/flight_report.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "dtensor/placement/error.h"
#include "dtensor/placement/step_kind.h"
#include "dtensor/text_table.h"

namespace dtensor::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kThreads[] = {"own", "async"};
constexpr size_t kMostShown = 80;  // bytes of a wrong value in an error

// Ascending ranks as text: "0-3,5".
std::string ranges(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t i = 0, end; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;)
      ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (end > i + 1)
      text += fmt::format("{}{}", end > i + 2 ? "-" : ",", ranks[end - 1]);
  }
  return text;
}

// Ranks with a noun: "rank 2", or "ranks 0-2,5".
std::string named(const std::vector<int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranges(ranks));
}

std::string duration(int64_t ns) {
  const double s = static_cast<double>(std::max<int64_t>(ns, 0)) / 1e9;
  if (s < 1) return fmt::format("{:.0f} ms", 1e3 * s);
  return fmt::format("{:.1f} s", s);
}

std::string day_and_time(int64_t ns) {
  const std::time_t seconds = ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  return text;
}

int64_t not_negative(const Json& json, const char* name) {
  const Json& value = json.at(name);
  if (!value.is_number_integer() || value.get<int64_t>() < 0)
    throw std::runtime_error(
        fmt::format("its {} is {}", name, value.dump().substr(0, kMostShown)));
  return value.get<int64_t>();
}

std::string one_of(const Json& json, const char* name,
                   std::initializer_list<std::string_view> choices) {
  const auto value = json.at(name).get<std::string>();
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    throw std::runtime_error(
        fmt::format("its {} is \"{}\"", name, value.substr(0, kMostShown)));
  return value;
}

FlightCall parse_call(const Json& json,
                      const std::vector<std::vector<int64_t>>& groups) {
  FlightCall c;
  const auto group = static_cast<size_t>(not_negative(json, "group"));
  if (group >= groups.size())
    throw std::runtime_error(fmt::format("it has no group {}", group));
  c.ranks = groups[group];
  c.number = not_negative(json, "number");
  c.sequence = not_negative(json, "sequence");
  c.state = one_of(json, "state", {"waits", "agreed", "ended", "threw"});
  const auto kind = json.at("kind").get<std::string>();
  const auto known = parse_kind(kind);
  c.kind = known ? std::string(name(*known)) : kind;
  c.op = json.at("op").get<std::string>();
  c.reduce = json.value("reduce", "");
  c.dtype = json.value("dtype", "");
  c.tensors = not_negative(json, "tensors");
  c.bytes = not_negative(json, "bytes");
  c.fingerprint = json.at("fingerprint").get<std::string>();
  c.begun_ns = not_negative(json, "begun_ns");
  return c;
}

FlightFile parse_file(const Json& json) {
  FlightFile file;
  file.rank = not_negative(json, "rank");
  file.world = not_negative(json, "world");
  if (file.rank >= file.world)
    throw std::runtime_error(fmt::format(
        "its rank {} is not below its world {}", file.rank, file.world));
  file.why = json.at("why").get<std::string>();
  file.state = one_of(json, "state", {"runs", "left", "failed"});
  file.error = json.at("error").get<std::string>();
  file.written_ns = not_negative(json, "written_ns");
  const Json& lanes = json.at("lanes");
  if (lanes.size() != 2)
    throw std::runtime_error(
        fmt::format("the number of its lanes is {}, not 2", lanes.size()));
  for (size_t lane = 0; lane < 2; ++lane) {
    const auto groups =
        lanes[lane].at("groups").get<std::vector<std::vector<int64_t>>>();
    for (const Json& call : lanes[lane].at("collectives"))
      file.lanes[lane].push_back(parse_call(call, groups));
  }
  return file;
}

// The states of a collective's members: "ended 0-2; never arrived 3".
std::string states(const FlightRow& row) {
  std::map<std::string, std::vector<int64_t>> by_state;
  for (const FlightRow::Member& m : row.members)
    if (m.call) by_state[m.call->state].push_back(m.rank);
  if (!row.missing.empty()) by_state["never arrived"] = row.missing;
  std::string text;
  for (const auto& [state, ranks] : by_state)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : "; ", state, ranges(ranks));
  return text;
}

const FlightCall& any_call(const FlightRow& row) {
  for (const FlightRow::Member& m : row.members)
    if (m.call) return *m.call;
  fail("flight", "a row has no call, which is an error in dtensor; report it");
}

}  // namespace

std::string FlightCall::to_string() const {
  std::string about;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) about += (about.empty() ? "" : ", ") + text;
  };
  if (tensors > 1) add(fmt::format("{} tensors", tensors));
  add(reduce);
  add(dtype);
  if (tensors > 0 || bytes > 0) add(fmt::format("{} bytes", grouped(bytes)));
  std::string text = fmt::format("{} #{}", kind, sequence);
  if (!about.empty()) text += fmt::format(" ({})", about);
  if (!op.empty()) text += fmt::format(" for {}", op);
  return text;
}

FlightFile parse_flight(const std::string& path, const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const std::exception&) {
    fail("flight",
         "{} is not JSON: it is damaged, or not from the flight recorder; name "
         "the files rank-N.json of one --flight DIR",
         path);
  }
  DT_CHECK(json.is_object() &&
               json.value("format", Json()) == Json("dtensor flight recorder"),
           "flight",
           "{} is not a file of the flight recorder; name the files "
           "rank-N.json of one --flight DIR",
           path);
  DT_CHECK(json.value("version", Json()) == Json(1), "flight",
           "{} has version {}, but this program reads version 1; use //:flight "
           "of the dtensor that wrote the file",
           path, json.value("version", Json()).dump().substr(0, kMostShown));
  try {
    return parse_file(json);
  } catch (const std::exception& e) {
    fail("flight", "{} is damaged: {}; leave it out, or record the run again",
         path, e.what());
  }
}

FlightReport::FlightReport(std::vector<FlightFile> given)
    : files(std::move(given)) {
  DT_CHECK(!files.empty(), "flight",
           "no files were given; name the files rank-N.json of one "
           "--flight DIR");
  std::sort(
      files.begin(), files.end(),
      [](const FlightFile& a, const FlightFile& b) { return a.rank < b.rank; });
  const int64_t world = files[0].world;
  for (size_t i = 0; i < files.size(); ++i) {
    DT_CHECK(
        files[i].world == world, "flight",
        "the run's number of ranks is {} in a file of rank {}, and {} in a "
        "file of rank {}; name the files of one run",
        world, files[0].rank, files[i].world, files[i].rank);
    DT_CHECK(i == 0 || files[i].rank != files[i - 1].rank, "flight",
             "two files are from rank {}; name one file of each rank, all from "
             "one run",
             files[i].rank);
  }
  for (int64_t r = 0; r < world; ++r)
    if (!file_of(r)) without.push_back(r);

  using Key = std::tuple<int, std::vector<int64_t>, int64_t>;
  std::map<Key, std::map<int64_t, const FlightCall*>> calls;
  for (const FlightFile& file : files)
    for (int lane = 0; lane < 2; ++lane)
      for (const FlightCall& c : file.lanes[lane])
        calls[{lane, c.ranks, c.sequence}][file.rank] = &c;
  for (const auto& [key, made] : calls) {
    FlightRow row;
    std::tie(row.lane, row.ranks, row.sequence) = key;
    bool complete = false;  // whether some member saw that all had arrived
    for (const auto& [rank, call] : made) {
      complete |= call->state == "agreed" || call->state == "ended";
      row.parts |= call->fingerprint != made.begin()->second->fingerprint;
      if (row.first_ns == 0 || call->begun_ns < row.first_ns)
        row.first_ns = call->begun_ns;
    }
    for (int64_t r : row.ranks) {
      if (!file_of(r)) continue;
      const auto it = made.find(r);
      row.members.push_back({r, it == made.end() ? nullptr : it->second});
      if (it == made.end() && !complete) row.missing.push_back(r);
    }
    rows.push_back(std::move(row));
  }
  // Keep only the first fault of each group.
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].parts && rows[i].missing.empty()) continue;
    if (!faults.empty() && rows[faults.back()].lane == rows[i].lane &&
        rows[faults.back()].ranks == rows[i].ranks)
      continue;
    faults.push_back(i);
  }
  std::stable_sort(faults.begin(), faults.end(), [&](size_t a, size_t b) {
    return rows[a].first_ns < rows[b].first_ns;
  });
}

const FlightFile* FlightReport::file_of(int64_t rank) const {
  for (const FlightFile& f : files)
    if (f.rank == rank) return &f;
  return nullptr;
}

std::string FlightReport::fault_text(const FlightRow& row) const {
  const std::string where =
      fmt::format("collective #{} of {}{}", row.sequence, named(row.ranks),
                  row.lane ? ", in their redistribute_async" : "");
  std::string text;
  if (row.parts) {
    // Members that made the same call are listed together.
    std::vector<std::pair<const FlightCall*, std::vector<int64_t>>> calls;
    for (const FlightRow::Member& m : row.members) {
      if (!m.call) continue;
      const auto at = std::find_if(calls.begin(), calls.end(), [&](auto& c) {
        return c.first->fingerprint == m.call->fingerprint;
      });
      if (at == calls.end())
        calls.push_back({m.call, {m.rank}});
      else
        at->second.push_back(m.rank);
    }
    bool differ = false;
    for (const auto& [call, ranks] : calls)
      differ |= call->to_string() != calls[0].first->to_string();
    text += fmt::format("ranks diverge at {}:\n", where);
    for (const auto& [call, ranks] : calls)
      text += fmt::format(
          "  {} called {}{}\n", named(ranks), call->to_string(),
          differ ? "" : fmt::format(", fingerprint {}", call->fingerprint));
  }
  if (row.missing.empty()) return text;
  int64_t waited = 0;
  std::vector<int64_t> came;
  for (const FlightRow::Member& m : row.members)
    if (m.call) {
      came.push_back(m.rank);
      waited = std::max(waited, file_of(m.rank)->written_ns - m.call->begun_ns);
    }
  text += fmt::format("{} never reached {}, {}:\n  {} arrived {} ago\n",
                      named(row.missing), where, any_call(row).to_string(),
                      named(came), duration(waited));
  for (int64_t r : row.missing) {
    const FlightFile& f = *file_of(r);
    text += fmt::format("  rank {} {}", r,
                        f.state == "failed" ? "failed: " + f.error
                        : f.state == "left" ? "had left the program"
                                            : "was running");
    const auto& mine = f.lanes[row.lane];
    text += mine.empty()
                ? "; it had not called any collective\n"
                : fmt::format("; its last call was {} of {}, {} ago\n",
                              mine.back().to_string(), named(mine.back().ranks),
                              duration(f.written_ns - mine.back().begun_ns));
  }
  return text;
}

std::string FlightReport::to_text(int64_t last) const {
  int64_t newest = 0, oldest = files[0].written_ns;
  for (const FlightFile& f : files) {
    newest = std::max(newest, f.written_ns);
    oldest = std::min(oldest, f.written_ns);
  }
  std::string text = fmt::format(
      "{} of {} ranks, written {} UTC because of {}\n", files.size(),
      files[0].world, day_and_time(newest), files[0].why);
  if (newest - oldest > 60'000'000'000)
    text += fmt::format(
        "(the oldest file was written {} before the newest: "
        "are they all from one run?)\n",
        duration(newest - oldest));
  if (!without.empty()) text += fmt::format("no file of {}\n", named(without));
  text += '\n';
  for (size_t i : faults) text += fault_text(rows[i]) + '\n';
  if (faults.empty())
    text += "all ranks made the same calls, and no rank is missing\n\n";

  TextTable lasts("rlllrl", {"rank", "thread", "last collective", "of ranks",
                             "ago", "state"});
  for (const FlightFile& f : files)
    for (int lane = 0; lane < 2; ++lane) {
      if (f.lanes[lane].empty() && lane == 1) continue;
      const FlightCall* c =
          f.lanes[lane].empty() ? nullptr : &f.lanes[lane].back();
      lasts.add({std::to_string(f.rank), kThreads[lane],
                 c ? c->to_string() : "none", c ? ranges(c->ranks) : "",
                 c ? duration(f.written_ns - c->begun_ns) : "",
                 f.state == "runs" && c ? c->state : f.state});
    }
  text += lasts.to_string();

  for (size_t i = 0, end; i < rows.size(); i = end) {
    for (end = i; end < rows.size() && rows[end].lane == rows[i].lane &&
                  rows[end].ranks == rows[i].ranks;)
      ++end;
    text += fmt::format("\n{}{}, the last collectives:\n", named(rows[i].ranks),
                        rows[i].lane ? ", redistribute_async" : "");
    TextTable table("lrl", {"collective", "arrived within", "ranks"});
    const size_t begin =
        std::max(i, end - std::min(end - i, static_cast<size_t>(last)));
    for (size_t at = begin; at < end; ++at) {
      int64_t latest = rows[at].first_ns;
      for (const FlightRow::Member& m : rows[at].members)
        if (m.call) latest = std::max(latest, m.call->begun_ns);
      table.add(
          {any_call(rows[at]).to_string(), duration(latest - rows[at].first_ns),
           rows[at].parts ? "DIVERGE: " + states(rows[at]) : states(rows[at])});
    }
    text += table.to_string();
  }
  return text;
}

Json FlightReport::to_json() const {
  const auto call_json = [](const FlightCall& c) -> Json {
    return {{"call", c.to_string()},  {"kind", c.kind},   {"op", c.op},
            {"sequence", c.sequence}, {"ranks", c.ranks}, {"state", c.state},
            {"begun_ns", c.begun_ns}};
  };
  Json ranks = Json::array();
  for (const FlightFile& f : files) {
    Json one = {{"rank", f.rank},
                {"state", f.state},
                {"error", f.error},
                {"written_ns", f.written_ns},
                {"last", nullptr}};
    if (!f.lanes[0].empty()) {
      one["last"] = call_json(f.lanes[0].back());
      one["last_seconds_ago"] =
          static_cast<double>(f.written_ns - f.lanes[0].back().begun_ns) / 1e9;
    }
    ranks.push_back(std::move(one));
  }
  Json found = Json::array();
  for (size_t i : faults) {
    const FlightRow& row = rows[i];
    Json calls = Json::array();
    for (const FlightRow::Member& m : row.members)
      if (m.call)
        calls.push_back({{"rank", m.rank},
                         {"call", m.call->to_string()},
                         {"fingerprint", m.call->fingerprint}});
    found.push_back({{"thread", kThreads[row.lane]},
                     {"ranks", row.ranks},
                     {"sequence", row.sequence},
                     {"parts", row.parts},
                     {"never_came", row.missing},
                     {"calls", std::move(calls)}});
  }
  return {{"world", files[0].world},
          {"why", files[0].why},
          {"without_file", without},
          {"faults", std::move(found)},
          {"ranks", std::move(ranks)}};
}

}  // namespace dtensor::report
