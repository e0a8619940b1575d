// The state of a run with ranks in several processes, as one process knows it:
// where each rank is, which have failed or left, and which wait for which.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/agreement.h"
#include "dtensor/comm/backend.h"
#include "dtensor/comm/barrier.h"
#include "dtensor/comm/hub_backend.h"
#include "dtensor/comm/local_group.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

class ProcessRun {
 public:
  // Ranks 0 .. ranks_per_process - 1 are threads of the first process, and so
  // on. The last processes may have fewer ranks, or none.
  ProcessRun(int64_t world, int64_t ranks_per_process,
             std::unique_ptr<Transport>);
  ~ProcessRun();

  Transport& transport() { return *transport_; }
  int process_of(int64_t rank) const {
    return static_cast<int>(rank / ranks_per_process_);
  }
  // The ranks of this process: [first, last).
  int64_t first_rank() const { return first_; }
  int64_t last_rank() const { return last_; }
  int64_t ranks_per_process() const { return ranks_per_process_; }

  // The backend for groups with all members in this process.
  HubBackend& threads() { return *threads_; }
  // The members in this process of the group of these ranks; one object for all
  // of them.
  LocalGroup& local(const std::vector<int64_t>& ranks, int lane);

  // A member of the group begins a collective. Records it for errors. Throws
  // the reason if the lane has failed.
  void enter(int member, int lane, const LocalGroup&, const Collective&);
  // Waits until all pending messages are done. Throws the reason if they never
  // will be: an awaited rank is gone, or has not come in time.
  void wait(PendingMessages&, int64_t rank, int lane);
  // Waits for the members in this process. False if some will not come.
  bool meet(LocalGroup&, int64_t rank, int lane);
  // As meet(), for members that have met already and so are certain to come.
  void meet_again(LocalGroup& group, int64_t rank, int lane) {
    group.barrier.wait_unbroken(threads_->membership().waited(rank, lane));
  }
  // Throws the Error that says why the awaited ranks will not come.
  [[noreturn]] void released(int64_t rank, int lane);

  void failed(int64_t rank, int lane, std::string_view what) noexcept;
  void left(int64_t rank) noexcept;
  // The total time for which ranks of this process slept until that rank came.
  std::chrono::nanoseconds waited_for(int64_t rank);
  void set_timeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    threads_->set_timeout(timeout);
  }

  // See HostBackend.
  void when_others_fail(std::function<void(const HostBackend::RemoteFailure&)>);
  // See Backend.
  std::optional<Backend::Failure> conclude(
      const std::optional<Backend::Failure>& here);

 private:
  using Clock = std::chrono::steady_clock;
  // A rank and a lane: one of its two threads.
  using Thread = std::pair<int64_t, int>;
  struct Place {
    std::atomic<bool> waits = false;
    // Guarded by listening_: the last call at the time of the previous search
    // for circles; and, by the thread that began it, the number of the last
    // search that passed through here.
    LastCall::Value last = {};
    std::map<Thread, uint64_t> searches = {};
  };
  // A search for a circle of threads that wait for each other: the thread that
  // began it, and the ranks on its path so far.
  struct Search {
    Thread first;
    uint64_t number = 0;  // number among the searches of this process
    std::vector<int64_t> ranks = {};
    std::string where = {};
  };
  // The collective in which the last thread of the path waits.
  struct Awaited {
    std::vector<int64_t> group;
    int lane = 0;
    uint64_t sequence = 0;
  };
  struct Gone {
    std::array<std::atomic<bool>, Backend::kLanes> lanes = {};
  };
  struct Lane {
    std::atomic<bool> failed = false;
    std::string why;  // guarded by mutex_, like the rest
    int64_t who = -1;
    Clock::time_point since;
    bool of_all = false;  // the error of all ranks, not that of a peer
    std::map<std::vector<int64_t>, std::unique_ptr<LocalGroup>> groups;
  };

  Place& place(int64_t rank, int lane) {
    return places_[static_cast<size_t>((rank - first_) * Backend::kLanes +
                                       lane)];
  }
  struct Where {
    std::vector<int64_t> group;  // empty: no call yet
    StepKind kind = StepKind::kBarrier;
    uint64_t sequence = 0;
    std::string op;
    bool waits = false;
  };
  Where where(int64_t rank, int lane);  // of a rank of this process
  static std::string to_string(const Where&);
  std::string who_is_missing(int64_t rank, int lane);
  void tell_all(const std::string& text) noexcept;
  void listen();
  void hear(const Transport::Told&);
  void lose(int process);
  void fail_lane(int64_t who, int lane, std::string why, bool of_all) noexcept;
  void mark_gone(int64_t rank, int lane) noexcept;
  void fail_all(int64_t rank, const std::string& text) noexcept;
  // process_circle.cc
  void seek_circles();
  void hear_search(const std::string& text);
  void follow(Thread, const Awaited*, Search);
  void found(const Search&);
  void decide();
  void end_as_told();
  std::string why() const;  // of the failed lane; needs mutex_
  [[noreturn]] void end_job(const std::string& why) noexcept;

  const int64_t world_, ranks_per_process_;
  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<HubBackend> threads_;
  const int64_t first_, last_;
  const bool spin_;
  std::chrono::milliseconds timeout_{0};
  std::vector<Place> places_;
  std::vector<Gone> gone_;  // by rank of the run
  // How long ranks here waited for ranks elsewhere, by rank of the run.
  std::mutex waiting_;
  std::vector<Waited> waited_for_;  // guarded by waiting_

  // Held during the call of told_. Locked before mutex_.
  std::mutex telling_;
  std::function<void(const HostBackend::RemoteFailure&)> told_;
  std::mutex listening_;
  std::mutex mutex_;
  std::array<Lane, Backend::kLanes> lanes_;
  // Answers to a rank that waits in vain: where other ranks are.
  std::map<int64_t, Where> whereabouts_;
  std::condition_variable changed_;
  // Process 0 only: how the ranks of each process ended.
  std::map<int, std::optional<Backend::Failure>> ended_;
  int lost_ = -1;  // a process that ended before the run did
  // It ended before anything else failed, and before a signal asked this
  // process to end.
  bool lost_first_ = false;
  // When a signal that asks this process to end was first seen.
  Clock::time_point asked_ = Clock::time_point::max();
  bool decided_ = false;
  std::optional<Backend::Failure> verdict_;
  uint64_t searches_ = 0;  // guarded by listening_
  bool stopping_ = false;
  std::thread listener_;
};

}  // namespace dtensor
