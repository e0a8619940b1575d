// The flight recorder: the last collectives of every rank, both its threads',
// as JSON that //:flight lines up. Recording is always on; a file is written
// when a run fails (RunOptions::flight) or somebody asks (write_flights()).
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/flight_ring.h"

namespace dtensor {

// Of one rank. What it says may be asked for by any thread at any time.
class FlightRecorder {
 public:
  FlightRecorder(int64_t rank, int64_t world) : rank_(rank), world_(world) {}
  int64_t rank() const { return rank_; }
  // 0: of its own thread, 1: of the other one.
  FlightRing& ring(int lane) { return rings_[lane]; }
  // The rank is done; with an error: it failed.
  void over(std::string_view error) noexcept;
  // The content of its file. `why` it is written: "a failure", "SIGUSR1".
  std::string to_json(std::string_view why) const;

 private:
  const int64_t rank_, world_;
  FlightRing rings_[2];
  mutable std::mutex mutex_;  // of what follows
  bool over_ = false;
  std::string error_;
};

// Those of the ranks of a run that this process has; known to write_flights()
// while it lives.
class FlightRecorders {
 public:
  // Of the ranks from first to last - 1.
  FlightRecorders(int64_t first, int64_t last, int64_t world);
  ~FlightRecorders();
  FlightRecorders(const FlightRecorders&) = delete;
  FlightRecorders& operator=(const FlightRecorders&) = delete;
  // REQUIRES: it is one of the ranks.
  FlightRecorder& of(int64_t rank) const;
  // FOLDER/rank-N.json for each, which is complete or the old one. Returns how
  // many. Throws Error when one cannot be written.
  int64_t write(const std::string& folder, std::string_view why) const;

 private:
  std::vector<std::unique_ptr<FlightRecorder>> all_;
};

// Makes the folder. Throws Error, headed by `where`, when there is none then
// that files can be written to.
void make_flight_folder(std::string_view where, const std::string& folder);

// write() of all runs of this process that are going on.
int64_t write_flights(const std::string& folder, std::string_view why);

}  // namespace dtensor
