// SPDX-License-Identifier: Apache-2.0
// The members of a run, as one process knows them: which ranks are its threads,
// which have failed or left, which collective each thread called last, and who
// waits for whom. In every backend, this class ends a rank's wait for others:
// when all have come, when a rank has failed or left, at the deadline, at a
// signal, or when ranks wait for each other in a circle.
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
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/barrier.h"
#include "dtensor/comm/flight_ring.h"
#include "dtensor/comm/group.h"
#include "dtensor/comm/job.h"

namespace dtensor {

class Membership : public Backend {
 public:
  // All ranks are threads of this process.
  explicit Membership(int64_t world) : Membership(world, world, nullptr) {}
  // Ranks 0 .. ranks_per_process - 1 are threads of the first process, and so
  // on. The last processes may have fewer ranks, or none. Called by all
  // processes of the job, which outlives this object; without a job, all ranks
  // are threads of this process. Throws Error if there are more ranks than the
  // processes can hold.
  Membership(int64_t world, int64_t ranks_per_process, ProcessJob*);
  ~Membership() override;

  // REQUIRES: there is a job.
  std::unique_ptr<PendingMessages> pending_messages();
  int process() const { return job_ ? job_->process() : 0; }
  int processes() const { return job_ ? job_->processes() : 1; }
  int process_of(int64_t rank) const {
    return static_cast<int>(rank / ranks_per_process_);
  }
  bool is_here(int64_t rank) const { return first_ <= rank && rank < last_; }

  // The group of these ranks, in this order. Members in this process share it.
  Group& members(const std::vector<int64_t>& ranks, int lane);

  // A member calls meet() and the next four functions on its own thread. meet()
  // waits until all members in this process have called it, or throws the Error
  // that says why some will not come.
  void meet(Group&, size_t place);
  // Like meet(), for members that have met already and so are certain to come.
  void meet_again(Group& group, size_t place) {
    group.barrier.wait_unbroken(thread(group, place).waited_for);
  }
  // Waits until all pending messages are done. Throws the Error that says why
  // they never will be, or that one has arrived damaged.
  void wait(PendingMessages&, const Group&, size_t place);
  // Throws the Error that says why the awaited ranks will not come.
  [[noreturn]] void released(const Group&, size_t place);
  // Throws as released() does if the lane has failed; otherwise does nothing.
  void check_failed(const Group& group, size_t place) {
    if (lane(group.lane).failed) released(group, place);
  }

  // See Backend.
  void set_timeout(std::chrono::milliseconds) override;
  void set_checksum(bool on) override { checksum_ = on; }
  std::pair<int64_t, int64_t> local_ranks(int64_t) const override {
    return {first_, last_};
  }
  std::optional<Failure> conclude(const std::optional<Failure>& here) override;
  std::chrono::nanoseconds waited_for(int64_t rank) override;
  void failed(int64_t rank, int lane, std::string_view what) noexcept override;
  void left(int64_t rank) noexcept override;
  FlightRing* flight(int64_t rank, int lane) override {
    return &thread(rank, lane).flight;
  }
  void set_idle(int64_t rank, int lane, bool idle) noexcept override {
    thread(rank, lane).idle = idle;
  }
  // The functions that a derived backend registers. When observe() returns,
  // those registered earlier are no longer called.
  struct Observer {
    // Some thread calls this at a lane's first failure, also if the rank is in
    // another process. The failure lives as long as the Membership.
    std::function<void(int lane, const RankFailure&)> failed;
    // Called at intervals. Returns the ranks of this process whose work exceeds
    // the timeout, or whose device has failed.
    std::function<std::vector<RankFailure>()> overdue;
  };
  void observe(Observer);
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  using Clock = std::chrono::steady_clock;
  // A rank and a lane, which identify one of the rank's two threads.
  using Id = std::pair<int64_t, int>;
  // The thread of a rank of this process in a lane.
  struct alignas(64) Thread {
    FlightRing flight;
    // The time for which other threads of this process slept until this one
    // came. Only the thread itself uses it, until it has ended.
    Waited waited_for;
    enum class Waits : uint8_t { kNot, kForThreads, kForMessages };
    std::atomic<Waits> waits = Waits::kNot;
    // Whether the thread waits for the rank's other one, or for work from it.
    std::atomic<bool> idle = false;
    // Used by look(): the number of the thread's last call, whether that call
    // was already the last one at the previous look, and for how long the
    // thread has waited in it.
    uint64_t last = 0;
    bool stays = false;
    TimeWaited waited;
    // For each thread that has begun searches: the number of its last search
    // that passed through this thread. Guarded by listening_.
    std::map<Id, uint64_t> searches = {};
  };
  struct Lane {
    std::atomic<bool> failed = false;
    // Never changes once `failed` is set. mutex_ guards it and what follows.
    RankFailure failure;
    Clock::time_point since;
    std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups;
  };
  struct Rank {
    std::array<std::atomic<bool>, kLanes> gone = {};
    // How long this process's ranks waited for this rank of another one.
    Waited waited_for;
  };
  class Waiting;
  bool done(PendingMessages&, const Group&, size_t place);
  // A search for a circle of threads that wait for each other: the thread that
  // began it, the ranks on its path so far, and a text about their calls.
  struct Search {
    Id first;
    uint64_t number = 0;  // the number of its seek_circles()
    std::vector<int64_t> ranks = {};
    std::string where = {};
  };
  // A collective in which others wait.
  struct Awaited {
    std::vector<int64_t> group;
    int lane = 0;
    uint64_t sequence = 0;
  };
  // Whether a rank has come to an awaited collective; if not, what keeps it.
  struct Answer {
    bool has_come = false;
    std::string keeps;
  };

  Thread& thread(int64_t rank, int lane) {
    return threads_[static_cast<size_t>((rank - first_) * kLanes + lane)];
  }
  Thread& thread(const Group& group, size_t place) {
    return thread(group.rank_at(place), group.lane);
  }
  Lane& lane(int number) { return lanes_[static_cast<size_t>(number)]; }
  std::atomic<bool>& gone(int64_t rank, int lane) {
    return ranks_[static_cast<size_t>(rank)].gone[static_cast<size_t>(lane)];
  }
  bool has_come(const Awaited&, int64_t rank);
  // Returns the collective that a thread of this process called last, with the
  // ranks of its group. The entry's number is 0 if there is none.
  std::pair<FlightEntry, std::vector<int64_t>> last_call(int64_t rank,
                                                         int lane);
  std::string what_keeps(int64_t rank, int lane);
  std::string who_is_missing(int64_t rank, int lane);
  void watch(const std::stop_token&);
  void look();
  void fail_lane(int lane, RankFailure) noexcept;
  void fail_all(int64_t rank, const std::string& text) noexcept;
  void mark_gone(int64_t rank, int lane) noexcept;
  // membership_circle.cc
  void seek_circles();
  void hear_search(const std::string& text);
  void follow(Id, const Awaited*, Search);
  void found(const Search&);
  // membership_processes.cc
  // Sends what text() returns to all other processes. If there is no memory for
  // the text, the others are not told, and wait until their deadline.
  template <class Text>
  void tell_all(const Text& text) noexcept {
    for (int p = 0; p < processes(); ++p) try {
        if (p != process()) tell(p, text());
      } catch (...) {  // process p waits until its deadline
      }
  }
  void tell(int process, std::string_view text) {
    job_->tell(number_, process, text);
  }
  void listen();
  void hear(const ProcessJob::Told&);
  void lose(int process);
  void decide();
  void end_as_told();
  std::vector<int> undecided();
  std::string why() const;  // why a lane failed; lock mutex_ before
  [[noreturn]] void end_job(const std::string& why, int code = 1) noexcept;

  ProcessJob* const job_;  // null if this process is in no job
  const int64_t world_, ranks_per_process_, first_, last_;
  const bool spin_;
  int64_t number_ = 0;  // the run's number in the job
  std::atomic<std::chrono::milliseconds> timeout_{};
  bool checksum_ = false;
  std::vector<Thread> threads_;
  std::vector<Rank> ranks_;  // all ranks of the run
  std::mutex waiting_;       // guards Rank::waited_for

  // Held during the calls of observer_. Locked before mutex_.
  std::mutex telling_;
  Observer observer_;
  // Held by the thread that handles control messages or searches for circles,
  // so that the messages keep their order. Locked before the other mutexes.
  std::mutex listening_;
  uint64_t searches_ = 0;
  std::mutex mutex_;
  std::array<Lane, kLanes> lanes_;

  // ---- With other processes ----
  // The answers of other processes to who_is_missing(), by the number of the
  // question and the rank that the answer is about.
  std::map<std::pair<uint64_t, int64_t>, Answer> answers_;
  uint64_t questions_ = 0;
  // By process: how its ranks ended, if known. Process 0 learns of all.
  std::map<int, std::optional<Failure>> ended_;
  int lost_ = -1;  // a process that ended before the run did
  // Whether lost_ ended before a rank of another process failed, and not more
  // than 200 ms after a signal.
  bool lost_first_ = false;
  // When a signal that asks this process to end was first seen.
  Clock::time_point asked_ = Clock::time_point::max();
  bool decided_ = false;
  std::optional<Failure> verdict_;

  std::condition_variable_any stop_;
  std::jthread watch_;  // declared last, so that it ends first
};

}  // namespace dtensor
