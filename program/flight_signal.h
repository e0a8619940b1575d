// SPDX-License-Identifier: Apache-2.0
// Writes the flight records of a running program when it receives SIGUSR1.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace dtensor {

// Blocks the signal in the calling thread and in all threads that it starts
// later, so construct it before any other thread. After answer(), a thread of
// its own handles the signal: it writes the flight records of all active runs,
// and prints their folder, or that no run is active, on standard error. The
// ranks are not disturbed. (The signal stays blocked after destruction, so that
// a late one does not kill the program.)
class FlightSignal {
 public:
  FlightSignal();
  ~FlightSignal();
  FlightSignal(const FlightSignal&) = delete;
  FlightSignal& operator=(const FlightSignal&) = delete;
  // Starts the thread that handles the signal. Call it once. `program` heads
  // the printed lines.
  void answer(const std::string& folder, const std::string& program);

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace dtensor
