// SPDX-License-Identifier: Apache-2.0
// Records the latest collectives of the ranks of this process.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/backend.h"

namespace dtensor {

// The recorder of one rank. Any thread may call to_json() at any time.
class FlightRecorder {
 public:
  // The backend, which outlives this object, has the rings (flight_ring.h) in
  // which collectives are recorded.
  FlightRecorder(int64_t rank, int64_t world, Backend& backend)
      : rank_(rank), world_(world), backend_(backend) {}
  int64_t rank() const { return rank_; }
  // Notes that the rank has left the run. If the rank failed, `error` says why;
  // else it is empty.
  void over(std::string_view error) noexcept;
  // The content of the rank's file. `why` is the reason for writing it: "a
  // failure" or "SIGUSR1".
  std::string to_json(std::string_view why) const;

 private:
  const int64_t rank_, world_;
  Backend& backend_;
  mutable std::mutex mutex_;  // guards the members below
  bool over_ = false;
  std::string error_;
};

// The recorders of a run's ranks in this process. write_flights() finds them
// until this object is destroyed.
class FlightRecorders {
 public:
  // Makes recorders for the ranks [first, last) of a run with `world` ranks.
  // The backend outlives them.
  FlightRecorders(int64_t first, int64_t last, int64_t world, Backend&);
  ~FlightRecorders();
  FlightRecorders(const FlightRecorders&) = delete;
  FlightRecorders& operator=(const FlightRecorders&) = delete;
  // The recorder of a rank. Throws Error if `rank` is not one of these ranks.
  FlightRecorder& of(int64_t rank) const;
  // Writes FOLDER/rank-N.json for each rank, atomically. Returns the number of
  // files. Throws Error if one cannot be written.
  int64_t write(const std::string& folder, std::string_view why) const;

 private:
  std::vector<std::unique_ptr<FlightRecorder>> all_;
};

}  // namespace dtensor
