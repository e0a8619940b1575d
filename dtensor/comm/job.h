// SPDX-License-Identifier: Apache-2.0
// The job to which this process belongs: processes that a launcher started
// together. Programs call the first part; the backend of a run calls the rest,
// which is all that it needs from MPI or TCP. Several threads may call it at
// once.
//
// Calls that wait for other processes have a deadline, patience(). A process
// from which nothing comes for so long is given up, with an Error that names it
// and says what the processes were doing; a process that waits tells the others
// now and then that it is alive. The same holds for messages that arrive
// damaged: the process that notices it throws an Error, and tells the others.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/deadline.h"
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

  // How long to wait for another process: join_patience() at first.
  Patience patience() const;
  void set_patience(const Patience&);

  // Called by all processes the same number of times, with how each fares.
  // Returns, in every process, the verdict of the lowest process that failed,
  // as soon as one fails or all have called. The verdict is that of this
  // process, or a NoAnswer's text, if the process that decides gives no answer.
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
  // processes that wait for it then throw an Error with the reason. `phase`
  // completes "the processes ..." in the error of one that waits in vain. `now`
  // is a clock in ns; by default steady_clock.
  struct Gathered {
    int process;
    std::string text;
    // In ns: process 0's clock minus this process's clock, and the largest
    // error of that (half of the shortest of several round trips).
    int64_t behind, within;
  };
  void gather(std::string_view phase, std::string_view here,
              const std::function<void(Gathered)>& take,
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
  // The cause of that process's end, as far as lost_in_run() can tell.
  virtual std::string why_lost(int /*process*/) {
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
  // their order, and carry a checksum: told() throws Error, once, if one of any
  // matter has arrived damaged. Runs have the numbers 1, 2, ..., agreements -1,
  // -2, ..., and gather() has 0.
  struct Told {
    int from;
    std::string text;
  };
  void tell(int64_t matter, int process, std::string_view text);
  std::optional<Told> told(int64_t matter, int from = -1);
  // Tells the processes that may wait for this one that it is alive, if that is
  // due. Called every now and then while they may.
  void beat();
  // Whether that process is known to have ended, or to be about to.
  virtual bool lost(int /*process*/) { return false; }
  // The exit code with which another process ends the whole job; 0: none does.
  virtual int ended_with() { return 0; }

  // A wait for other processes, in a loop that listens.
  class Wait {
   public:
    // `phase` as for gather(). `most`, if given, instead of patience().
    Wait(ProcessJob&, std::string_view phase,
         std::optional<std::chrono::milliseconds> most = {});
    // Calls awaited() now and then, which returns the processes for which this
    // one waits. Throws NoAnswer if nothing has come from some of them for too
    // long, or half a second after a signal that asks this process to end.
    void look(const std::function<std::vector<int>()>& awaited);

   private:
    struct Clock {
      uint64_t heard = 0;
      TimeWaited waited;
    };
    [[noreturn]] void give_up(const std::string& text);

    ProcessJob& job_;
    const std::string phase_;
    Patience patience_;
    TimeWaited::Clock::time_point next_;
    std::map<int, Clock> clocks_;  // by process
    std::optional<TimeWaited> asked_;
  };

 protected:
  ProcessJob() = default;
  ProcessJob(int process, int processes)
      : process_(process), processes_(processes) {}
  // Sends what tell() has put together, and never waits.
  virtual void send(int64_t matter, int process, std::string text) = 0;
  // Prepares the run of that number.
  virtual void open_run(int64_t /*run*/, int64_t /*ranks_per_process*/) {}
  // Calls deliver() for the texts of send() that have arrived, and throws its
  // Errors.
  virtual void listen() = 0;
  void deliver(int64_t matter, Told);
  // Whether this job has failed: its end need not wait for the others for long.
  bool failed() const { return failed_; }
  // As agree(), about another matter, such as these two.
  static constexpr int64_t kBegins = std::numeric_limits<int64_t>::min() + 1,
                           kLeaves = kBegins + 1;
  JobVerdict settle(int64_t matter, const JobVerdict& here,
                    std::string_view phase);

  int process_ = 0, processes_ = 1;

 private:
  JobVerdict settle_as_first(int64_t matter, const JobVerdict& here, Wait);
  JobVerdict settle_as_other(int64_t matter, const JobVerdict& here, Wait);
  JobVerdict gone(int process);
  void check_damage() const;
  JobVerdict ended(const JobVerdict& here);
  void warn(const std::string& why);
  std::string hear_from(int process, Wait);
  void give(std::string_view phase, std::string_view here,
            const std::function<int64_t()>& now);

  mutable std::mutex mutex_;
  Patience patience_ = join_patience();
  TimeWaited::Clock::time_point beat_ = TimeWaited::Clock::now();
  std::map<int, uint64_t> heard_;  // by process: the texts that have come
  std::string damage_;             // the first Error of told()
  // This process has given up waiting, and does not wait for an answer again.
  std::atomic<bool> gave_up_ = false;
  int64_t runs_ = 0, agreements_ = 0;
  std::atomic<bool> failed_ = false;
  bool is_main_ = false;                      // set by each agreement
  std::map<int64_t, std::deque<Told>> told_;  // by matter
};

}  // namespace dtensor
