// SPDX-License-Identifier: Apache-2.0
// The job to which this process belongs: processes that a launcher started
// together. Programs call the functions above the heading "Runs". The backend
// of a run calls those below it and set_patience(), and needs nothing else from
// MPI or TCP. Several threads may call these functions at once.
//
// Calls that wait for other processes have a deadline, patience(). If nothing
// comes from another process for that long, the call throws an Error that names
// the process and says what the processes were doing; only agree() returns the
// text instead. Now and then, each process tells those that may wait for it
// that it is alive (see beat()). If a control message arrives damaged, its
// receiver fails with an Error and tells the other processes.
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

// How a process or a job fares: code 0 and no text if all is well, or else the
// exit code and the reason for it. The reason may be missing if another process
// ends the job, because that process prints it.
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

  // All processes call this the same number of times; `here` says how this
  // process fares. Returns when all have called, or 50 ms after the first has
  // failed. The verdict, the same in every process, is that of the lowest
  // process that has failed by then. Process 0 decides. If it gives no answer,
  // the call returns `here` if this process has failed, or else the reason why
  // no answer came. If another process ends the job, returns ended_with().
  JobVerdict agree(const JobVerdict& here);
  // All processes call this once, before anything else. If their facts differ,
  // every process throws the same Error, which names what differs.
  void compare(const JobFacts& here);
  // Whether this process has to print the verdict. Process 0 prints it or, if
  // that has ended, the lowest process that still runs. A process that has
  // waited in vain for process 0 prints, too.
  bool is_main_process();

  // Sends the text `here` of every other process to process 0, which calls
  // `take` once for each of them. All processes call this the same number of
  // times, while none is in a run. A process that has failed calls
  // not_gathering() instead; the processes that wait for it then throw an Error
  // with the reason. `phase` completes the words "the processes ..." in the
  // error of a process that waits in vain. `now` is a clock in ns; by default
  // steady_clock.
  struct Gathered {
    int process;
    std::string text;
    // In ns: process 0's clock minus the clock of `process`, and the largest
    // error of that difference (half of the shortest of several round trips).
    int64_t behind, within;
  };
  void gather(std::string_view phase, std::string_view here,
              const std::function<void(Gathered)>& take,
              const std::function<int64_t()>& now = nullptr);
  void not_gathering(std::string_view why) noexcept;

  // Returns the command that starts that many processes: "mpirun -n 4".
  virtual std::string launcher(int64_t processes) const = 0;

  // ---- Runs, one after the other ----

  // Begins a run in this process and returns its number: 1, 2, ... Called by
  // all processes, with the same argument.
  int64_t begin_run(int64_t ranks_per_process);
  // Makes the object with which one thread of the run sends and receives its
  // messages. The job outlives it.
  virtual std::unique_ptr<PendingMessages> pending_messages() = 0;
  // Sleeps until something arrives, but at most for the given time. Waiting
  // threads call it to leave the processor to others. Returns false at once if
  // the job cannot sleep.
  virtual bool rest(std::chrono::microseconds) { return false; }
  // Returns a process known to have ended in the middle of the run, or -1.
  virtual int lost_in_run() { return -1; }
  // Returns why the process that lost_in_run() returned has ended, as far as is
  // known.
  virtual std::string why_lost(int /*process*/) {
    return "its process has ended in the middle of the run; look for the error "
           "in its output, or for a signal that killed it";
  }
  // Called when the run is over in this process. `clean`: the run has succeeded
  // in every process, and no message is under way.
  virtual void end_run(bool /*clean*/) {}
  // Ends the other processes with exit code `code`. Called when some of them no
  // longer answer. If the call returns, the caller ends its own process.
  virtual void abort(int code) noexcept = 0;

  // ---- Control messages ----

  // Control messages are texts, each about a numbered matter (topic): 1, 2, ...
  // for the runs, -1, -2, ... for the agreements, 0 for gather(), and constants
  // for settle() (below) and beat() (job.cc). Texts from one process about one
  // matter keep their order. Each carries a checksum.
  struct Told {
    int from;
    std::string text;
  };
  // Sends a text to another process, and never waits.
  void tell(int64_t matter, int process, std::string_view text);
  // Returns the next text about the matter that has come from process `from`
  // (-1: from any), or nothing. Throws Error, once, if a text about any matter
  // has arrived damaged.
  std::optional<Told> told(int64_t matter, int from = -1);
  // Tells all other processes that this one has failed. Processes in the same
  // run as this one, or in the next run, then do not wait for its ranks.
  void warn(const std::string& why) noexcept;
  // Tells the processes that may be waiting for this one that it is alive,
  // unless it has done so a short time ago. Call it now and then while they may
  // wait.
  void beat();
  // Whether that process is known to have ended, or to be about to end.
  virtual bool lost(int /*process*/) { return false; }
  // Returns the exit code with which another process ends the whole job, or 0.
  virtual int ended_with() { return 0; }

  // The deadline of a wait for other processes, for a loop that calls told()
  // and look().
  class Wait {
   public:
    // `phase` completes the words "the processes ..." in the text of NoAnswer.
    // The limit is `most` if it is given, else patience().
    Wait(ProcessJob&, std::string_view phase,
         std::optional<std::chrono::milliseconds> most = {});
    // Call it in each round of the loop. Now and then it calls awaited(), which
    // returns the processes for which this one waits. Throws NoAnswer if
    // nothing has come from some of them for too long, or half a second after a
    // signal that asks this process to end.
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
    std::map<int, Clock> clocks_;  // one per process
    std::optional<TimeWaited> asked_;
  };

 protected:
  ProcessJob() = default;
  ProcessJob(int process, int processes)
      : process_(process), processes_(processes) {}
  // Sends a text that tell() has prefixed with its checksum, and never waits.
  virtual void send(int64_t matter, int process, std::string text) = 0;
  // Prepares the run of that number.
  virtual void open_run(int64_t /*run*/, int64_t /*ranks_per_process*/) {}
  // Calls deliver() for each text that other processes have sent by send() and
  // that has arrived. Throws the Errors of deliver().
  virtual void listen() = 0;
  void deliver(int64_t matter, Told);
  // Whether this job has failed. If so, this process waits only briefly for the
  // others at the end of the program.
  bool failed() const { return failed_; }
  // Matters for settle(): a run begins, and the processes leave the program.
  static constexpr int64_t kBegins = std::numeric_limits<int64_t>::min() + 1,
                           kLeaves = kBegins + 1;
  // Like agree(), in messages of this matter. NoAnswer's text names `phase`.
  JobVerdict settle(int64_t matter, const JobVerdict& here,
                    std::string_view phase);

  int process_ = 0, processes_ = 1;

 private:
  JobVerdict settle_as_first(int64_t matter, const JobVerdict& here, Wait);
  JobVerdict settle_as_other(int64_t matter, const JobVerdict& here, Wait);
  JobVerdict gone(int process);
  void check_damage() const;
  JobVerdict ended(const JobVerdict& here);
  std::string hear_from(int process, Wait);
  void give(std::string_view phase, std::string_view here,
            const std::function<int64_t()>& now);

  mutable std::mutex mutex_;
  Patience patience_ = join_patience();
  TimeWaited::Clock::time_point beat_ = TimeWaited::Clock::now();
  std::map<int, uint64_t> heard_;  // texts that came from each process
  std::string damage_;             // the text of told()'s first Error
  // Whether this process has given up waiting; settle() then no longer waits
  // for an answer of process 0.
  std::atomic<bool> gave_up_ = false;
  int64_t runs_ = 0, agreements_ = 0;
  std::atomic<bool> failed_ = false;
  bool is_main_ = false;                      // set by each agreement
  std::map<int64_t, std::deque<Told>> told_;  // one queue per matter
};

}  // namespace dtensor
