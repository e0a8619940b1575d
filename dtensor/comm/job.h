// The job to which this process belongs: processes that a launcher started
// together. This is the interface for programs, independent of the transport.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/job_facts.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// How a process or a job fares: code 0 and no text, or an exit code and the
// reason.
struct JobVerdict {
  int code = 0;
  std::string text;
};

class ProcessJob {
 public:
  virtual ~ProcessJob() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  // Called by all processes the same number of times, with how each fares.
  // Returns, in every process, the verdict of the lowest process that failed,
  // as soon as one fails or all have called.
  JobVerdict agree(const JobVerdict& here);
  // Called by all processes once, before anything else. Throws the same Error,
  // which names what differs, in every process.
  void compare(const JobFacts& here);
  // Whether this process prints what was agreed: process 0, or the lowest
  // process that still runs if process 0 has ended.
  bool is_main_process();

  // Gives process 0 the text of every other process: calls `take` there, once
  // per process. Called by all processes the same number of times, while none
  // is in a run. A process that has failed calls not_gathering() instead; the
  // processes that wait for it then throw an Error with the reason. `now` is a
  // clock in ns; by default steady_clock.
  struct Gathered {
    int process;
    std::string text;
    // In ns: process 0's clock minus this process's clock, and the largest
    // error of that (half of the shortest of several round trips).
    int64_t behind, within;
  };
  void gather(std::string_view here, const std::function<void(Gathered)>& take,
              const std::function<int64_t()>& now = nullptr);
  void not_gathering(std::string_view why) noexcept;

  // The backend of a run. All processes call it, with the same numbers.
  std::shared_ptr<HostBackend> backend(int64_t world,
                                       int64_t ranks_per_process) {
    return std::make_shared<HostBackend>(world, ranks_per_process,
                                         begin_run(ranks_per_process));
  }
  // The transport of a new run. The job outlives it.
  virtual std::unique_ptr<Transport> begin_run(int64_t ranks_per_process) = 0;
  // The command that starts so many processes: "mpirun -n 4".
  virtual std::string launcher(int64_t processes) const = 0;

  // Short control messages about a numbered matter. tell() sends one to another
  // process and never waits; told() returns the next one received about that
  // matter, from that process or from any (-1), if any. Messages from one
  // process keep their order. Runs have the numbers 1, 2, ..., agreements -1,
  // -2, ..., and gather() has 0.
  virtual void tell(int64_t matter, int process, std::string_view text) = 0;
  std::optional<Transport::Told> told(int64_t matter, int from = -1);
  // Whether that process is known to have ended, or to be about to.
  virtual bool lost(int /*process*/) { return false; }
  // The exit code with which another process ends the whole job; 0: none does.
  virtual int ended_with() { return 0; }

 protected:
  // Calls deliver() for the messages that have arrived.
  virtual void listen() = 0;
  void deliver(int64_t matter, Transport::Told told);
  // Begins a run in this process and returns its number.
  int64_t next_run();
  int64_t runs();
  bool failed();

 private:
  JobVerdict agree_as_first(int64_t matter, const JobVerdict& here);
  JobVerdict agree_as_other(int64_t matter, const JobVerdict& here);
  JobVerdict ended(const JobVerdict& here);
  std::string hear_from(int process);
  void give(std::string_view here, const std::function<int64_t()>& now);

  std::mutex mutex_;
  int64_t runs_ = 0, agreements_ = 0;
  bool failed_ = false;
  bool is_main_ = false;  // set by each agreement
  std::map<int64_t, std::deque<Transport::Told>> told_;  // by matter
};

}  // namespace dtensor
