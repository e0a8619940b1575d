// The job that this process is one of: processes that a launcher has started
// together, and what a program asks of them, whatever carries their messages.
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

// How a process fares, or a job: 0 and no text, or an exit code and why.
struct JobVerdict {
  int code = 0;
  std::string text;
};

class ProcessJob {
 public:
  virtual ~ProcessJob() = default;
  virtual int process() const = 0;
  virtual int processes() const = 0;

  // Called by all processes equally often, with how each fares. Returns what
  // the lowest one that fails has said, in every process, as soon as one fails
  // or all have come.
  JobVerdict agree(const JobVerdict& here);
  // Called by all processes, once, before anything else: throws the Error that
  // names what differs, the same in every process.
  void compare(const JobFacts& here);
  // Whether this process is the one that says what was agreed upon: the first
  // one that was still there.
  bool is_main_process();

  // Gives the first process what each other one has: to `take`, one after the
  // other. Called by all processes equally often, while none is in a run. A
  // process that has failed instead calls not_gathering(), and those that wait
  // for it throw Error that says why. `now` is a clock, in ns; the default is
  // steady_clock.
  struct Gathered {
    int process;
    std::string text;
    // What the first process's clock showed less what this one's did, and by
    // how much it may be another: half of the shortest of some round trips.
    int64_t behind, within;
  };
  void gather(std::string_view here, const std::function<void(Gathered)>& take,
              const std::function<int64_t()>& now = nullptr);
  void not_gathering(std::string_view why) noexcept;

  // A run's, that all processes begin, with the same numbers.
  virtual std::shared_ptr<HostBackend> backend(int64_t world,
                                               int64_t ranks_per_process) = 0;
  // What starts so many processes: "mpirun -n 4".
  virtual std::string launcher(int64_t processes) const = 0;

  // Few words about one matter, that of a number, to another process; never
  // waits. And the next about it that has come; each process's come in order.
  // Runs have the numbers 1, 2, ..., agreements -1, -2, ..., what is gathered
  // 0.
  virtual void tell(int64_t matter, int process, std::string_view text) = 0;
  std::optional<Transport::Told> told(int64_t matter);
  // Has this process ended, or is it about to, as far as that can be seen from
  // here?
  virtual bool lost(int /*process*/) { return false; }
  // With which code another process ends all of them; 0: none does.
  virtual int ended_with() { return 0; }

 protected:
  // Delivers what has come.
  virtual void listen() = 0;
  void deliver(int64_t matter, Transport::Told told);
  // The number of the run that begins now, in this process.
  int64_t next_run();
  int64_t runs();
  bool failed();

 private:
  JobVerdict agree_as_first(int64_t matter, const JobVerdict& here);
  JobVerdict agree_as_other(int64_t matter, const JobVerdict& here);
  JobVerdict ended(const JobVerdict& here);
  std::string hear_from(int process, std::deque<Transport::Told>& others);
  void give(std::string_view here, const std::function<int64_t()>& now);

  std::mutex mutex_;
  int64_t runs_ = 0, agreements_ = 0;
  bool failed_ = false;
  bool is_main_ = false;  // once there is an agreement
  std::map<int64_t, std::deque<Transport::Told>> told_;  // by matter
};

}  // namespace dtensor
