// SPDX-License-Identifier: Apache-2.0
#include "dtensor/flight.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "dtensor/comm/flight_ring.h"
#include "dtensor/flight_recorder.h"
#include "dtensor/placement/error.h"
#include "dtensor/text_file.h"

namespace dtensor {
namespace {

using Json = nlohmann::ordered_json;

// The recorders of the active runs; live_mutex guards them.
std::mutex live_mutex;
std::vector<const FlightRecorders*>& live() {
  static std::vector<const FlightRecorders*> all;
  return all;
}

template <class Clock>
int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             Clock::now().time_since_epoch())
      .count();
}

// The Unix time at which steady_clock was 0, in ns. It is one value for all
// ranks of this process, and approximately comparable between machines with
// synchronised clocks.
int64_t to_unix() {
  static const int64_t offset = nanoseconds<std::chrono::system_clock>() -
                                nanoseconds<std::chrono::steady_clock>();
  return offset;
}

std::string_view state_of(const FlightEntry& e) {
  if (e.threw) return "threw";
  if (e.ended) return "ended";
  return e.agreed ? "agreed" : "waits";
}

Json to_json(const FlightEntry& e) {
  Json json = {
      {"number", e.number},   {"group", e.group}, {"sequence", e.sequence},
      {"kind", key(e.kind)},  {"op", e.op},       {"state", state_of(e)},
      {"tensors", e.tensors}, {"bytes", e.bytes}};
  if (e.tensors > 0) json["dtype"] = name(e.dtype);
  if (e.tensors > 0 && reduces(e.kind)) json["reduce"] = name(e.reduce_op);
  json["fingerprint"] = fmt::format("{:016x}", e.fingerprint);
  json["begun_ns"] = e.begun + to_unix();
  if (e.over > 0) json["over_ns"] = e.over + to_unix();
  return json;
}

Json lane_to_json(int lane, const FlightRing::Snapshot& all) {
  Json entries = Json::array();
  for (const FlightEntry& e : all.entries) entries.push_back(to_json(e));
  return {{"lane", lane},
          {"groups", all.groups},
          {"now_ns", all.now + to_unix()},
          {"collectives", std::move(entries)}};
}

}  // namespace

void FlightRecorder::over(std::string_view error) noexcept {
  std::lock_guard lock(mutex_);
  over_ = true;
  try {
    error_ = error;
  } catch (...) {  // out of memory; a short text needs no allocation
    error_ = "it failed";
  }
}

std::string FlightRecorder::to_json(std::string_view why) const {
  std::string error;
  bool over;
  {
    std::lock_guard lock(mutex_);
    error = error_;
    over = over_;
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  Json json = {{"format", "dtensor flight recorder"},
               {"version", 1},
               {"rank", rank_},
               {"world", world_},
               {"host", host},
               {"process", getpid()},
               {"why", why},
               {"written_ns", 0},
               {"state", !error.empty() ? "failed"
                         : over         ? "left"
                                        : "runs"},
               {"error", error},
               {"lanes", Json::array()}};
  // Lane 0 is the rank's main thread, lane 1 its second thread.
  for (int lane = 0; lane < Backend::kLanes; ++lane) {
    const FlightRing* ring = backend_.flight(rank_, lane);
    json["lanes"].push_back(
        lane_to_json(lane, ring ? ring->snapshot() : FlightRing::Snapshot{}));
  }
  // Set last: no lane's now_ns may be later than the file's written_ns.
  json["written_ns"] = nanoseconds<std::chrono::steady_clock>() + to_unix();
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

FlightRecorders::FlightRecorders(int64_t first, int64_t last, int64_t world,
                                 Backend& backend) {
  for (int64_t r = first; r < last; ++r)
    all_.push_back(std::make_unique<FlightRecorder>(r, world, backend));
  std::lock_guard lock(live_mutex);
  live().push_back(this);
}

FlightRecorders::~FlightRecorders() {
  std::lock_guard lock(live_mutex);
  std::erase(live(), this);
}

FlightRecorder& FlightRecorders::of(int64_t rank) const {
  const auto at = std::find_if(all_.begin(), all_.end(), [&](const auto& one) {
    return one->rank() == rank;
  });
  DT_CHECK(at != all_.end(), "flight",
           "rank {} is not in this process; call this in its process", rank);
  return **at;
}

int64_t FlightRecorders::write(const std::string& folder,
                               std::string_view why) const {
  // Two concurrent writers would use the same temporary file.
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  for (const auto& one : all_) {
    TextWriter file("flight",
                    fmt::format("{}/rank-{}.json", folder, one->rank()));
    file.put(one->to_json(why));
    file.commit();
  }
  return static_cast<int64_t>(all_.size());
}

void make_flight_folder(std::string_view where, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0)
    error = std::error_code(errno, std::generic_category());
  DT_CHECK(!error, where, "cannot write to {}: {}; name another folder", folder,
           error.message());
}

int64_t write_flights(const std::string& folder, std::string_view why) {
  std::lock_guard lock(live_mutex);
  int64_t files = 0;
  for (const FlightRecorders* run : live()) files += run->write(folder, why);
  return files;
}

}  // namespace dtensor
