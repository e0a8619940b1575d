// SPDX-License-Identifier: Apache-2.0
// The job to which this process belongs: processes that a launcher started
// together. Programs call the first part; the backend of a run calls the rest,
// which is all that it needs from MPI or TCP. Several threads may call it at
// once.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

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
  int process() const { return process_; }
  int processes() const { return processes_; }

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

  // The command that starts so many processes: "mpirun -n 4".
  virtual std::string launcher(int64_t processes) const = 0;

  // ---- Runs, one after the other ----

  // Begins a run in this process and returns its number: 1, 2, ... Called by
  // all processes, with the same argument.
  int64_t begin_run(int64_t ranks_per_process);
  // The messages of one thread of the run. The job outlives them.
  virtual std::unique_ptr<PendingMessages> pending_messages() = 0;
  // Sleeps until something arrives, at most that long, for waiting threads that
  // should leave the processor to others. Returns false at once if the job
  // cannot sleep.
  virtual bool rest(std::chrono::microseconds) { return false; }
  // A process that is known to have ended in the middle of the run; -1: none.
  virtual int lost_in_run() { return -1; }
  // The cause of that end, as far as lost_in_run() can tell.
  virtual std::string_view why_lost() const {
    return "its process has ended in the middle of the run (it was killed, or "
           "crashed)";
  }
  // The run is over in this process. `clean`: it has succeeded everywhere, and
  // no message is under way.
  virtual void end_run(bool /*clean*/) {}
  // Ends the other processes with `code`, when some of them no longer answer.
  // The caller then ends its own process, if it still runs.
  virtual void abort(int code) noexcept = 0;

  // ---- Control messages ----

  // Short texts about a numbered matter. tell() sends one to another process
  // and never waits; told() returns the next one received about that matter,
  // from that process or from any (-1), if any. Texts from one process keep
  // their order. Runs have the numbers 1, 2, ..., agreements -1, -2, ..., and
  // gather() has 0.
  struct Told {
    int from;
    std::string text;
  };
  virtual void tell(int64_t matter, int process, std::string_view text) = 0;
  std::optional<Told> told(int64_t matter, int from = -1);
  // Whether that process is known to have ended, or to be about to.
  virtual bool lost(int /*process*/) { return false; }
  // The exit code with which another process ends the whole job; 0: none does.
  virtual int ended_with() { return 0; }

 protected:
  ProcessJob() = default;
  ProcessJob(int process, int processes)
      : process_(process), processes_(processes) {}
  // Prepares the run of that number.
  virtual void open_run(int64_t /*run*/, int64_t /*ranks_per_process*/) {}
  // Calls deliver() for the messages that have arrived.
  virtual void listen() = 0;
  void deliver(int64_t matter, Told);
  bool failed() const { return failed_; }

  int process_ = 0, processes_ = 1;

 private:
  JobVerdict agree_as_first(int64_t matter, const JobVerdict& here);
  JobVerdict agree_as_other(int64_t matter, const JobVerdict& here);
  JobVerdict ended(const JobVerdict& here);
  std::string hear_from(int process);
  void give(std::string_view here, const std::function<int64_t()>& now);

  std::mutex mutex_;
  int64_t runs_ = 0, agreements_ = 0;
  std::atomic<bool> failed_ = false;
  bool is_main_ = false;                      // set by each agreement
  std::map<int64_t, std::deque<Told>> told_;  // by matter
};

}  // namespace dtensor
