// SIGUSR1 asks a program what its ranks are doing.
#pragma once
#include <atomic>
#include <string>
#include <thread>

namespace dtensor {

// Made before other threads are: from then on none of them takes the signal. A
// thread of this one's own writes the flights of the runs that are going on,
// and says on standard error where they are; the ranks go on, or go on
// waiting. (The signal stays blocked when this is gone: one that comes at the
// very end does not kill the program.)
class FlightSignal {
 public:
  FlightSignal();
  ~FlightSignal();
  FlightSignal(const FlightSignal&) = delete;
  FlightSignal& operator=(const FlightSignal&) = delete;
  // Begins to answer, once. `program`: who says it.
  void answer(const std::string& folder, const std::string& program);

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace dtensor
