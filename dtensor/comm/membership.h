// The members of a run whose ranks are threads of one process: which have
// failed or left, which collective each thread called last, and who waits for
// whom. All waits end here: when everyone has come, because a rank has failed
// or left, at the deadline, or because ranks wait for each other in a circle.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/barrier.h"
#include "dtensor/comm/group.h"
#include "dtensor/comm/last_call.h"

namespace dtensor {

class Membership {
 public:
  explicit Membership(int64_t world);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // How long a rank may wait before all ranks fail; 0, the default, means no
  // limit. Called before the first collective.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

  // The group of these ranks in this order; one object for all members of this
  // process.
  Group& group(const std::vector<int64_t>& ranks, int lane);

  // The calls of a member of this process, by its own thread.
  //
  // The member comes to a collective: records it for errors.
  void note(const Group&, size_t place, const Call&, uint64_t sequence);
  // Waits for the members in this process. Throws the Error that says why some
  // will not come.
  void meet(Group&, size_t place);
  // As meet(), for members that have met already and so are certain to come.
  void meet_again(Group& group, size_t place) {
    group.barrier.wait_unbroken(thread(group, place).waited_for);
  }
  // Throws the Error that says why the awaited ranks will not come.
  [[noreturn]] void released(const Group&, size_t place);
  // See Backend.
  void failed(int64_t rank, int lane, std::string_view what) noexcept;
  void left(int64_t rank) noexcept;
  std::chrono::nanoseconds waited_for(int64_t rank);
  void set_idle(int64_t rank, int lane, bool idle) noexcept {
    thread(rank, lane).idle = idle;
  }
  // As failed(), for a rank of another process.
  void stop(int lane, RankFailure failure) noexcept {
    fail_lane(lane, std::move(failure));
  }
  // For a run with ranks in other processes.
  Waited& waited(int64_t rank, int lane) {
    return thread(rank, lane).waited_for;
  }
  LastCall::Value last_call(int64_t rank, int lane) {
    return thread(rank, lane).last.get();
  }
  bool is_idle(int64_t rank, int lane) { return thread(rank, lane).idle; }
  bool has_come(const std::vector<int64_t>& group, int64_t rank, int lane,
                uint64_t sequence) {
    return has_come({group, lane, sequence}, rank);
  }

 private:
  using Clock = std::chrono::steady_clock;
  // A rank and a lane: one of its two threads.
  using Id = std::pair<int64_t, int>;
  // One of the threads.
  struct alignas(64) Thread {
    LastCall last;
    // The time for which others here slept until it came. By the thread itself,
    // or after it has ended.
    Waited waited_for;
    std::atomic<bool> waits = false;  // for others, for a while already
    // Waits for the rank's other thread, or for work from it.
    std::atomic<bool> idle = false;
    // Guarded by seeking_: the last call at the time of the previous search
    // for circles; and, by the thread that began it, the number of the last
    // search that passed through here.
    LastCall::Value before = {};
    std::map<Id, uint64_t> searches = {};
  };
  struct Lane {
    std::atomic<bool> failed = false;
    // Guarded by mutex_, like the rest; never changes once `failed` is set.
    RankFailure failure;
    std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups;
  };
  struct Rank {
    std::array<std::atomic<bool>, Backend::kLanes> gone = {};
  };
  // A search for a circle of threads that wait for each other: the thread that
  // began it, and the ranks on its path so far.
  struct Search {
    Id first;
    uint64_t number = 0;  // number among the searches of this process
    std::vector<int64_t> ranks = {};
    std::string where = {};
  };
  // A collective in which others wait.
  struct Awaited {
    std::vector<int64_t> group;
    int lane = 0;
    uint64_t sequence = 0;
  };

  Thread& thread(int64_t rank, int lane) {
    return threads_[static_cast<size_t>(rank * Backend::kLanes + lane)];
  }
  Thread& thread(const Group& group, size_t place) {
    return thread(group.rank_at(place), group.lane);
  }
  Lane& lane(int number) { return lanes_[static_cast<size_t>(number)]; }
  std::atomic<bool>& gone(int64_t rank, int lane) {
    return ranks_[static_cast<size_t>(rank)].gone[static_cast<size_t>(lane)];
  }
  bool has_come(const Awaited&, int64_t rank);
  std::string what_keeps(int64_t rank, int lane);
  std::string who_is_missing(int64_t rank, int lane);
  void late(int64_t rank, int lane, Clock::duration waited) noexcept;
  void fail_lane(int lane, RankFailure) noexcept;
  void fail_all(int64_t rank, const std::string& text) noexcept;
  void mark_gone(int64_t rank, int lane) noexcept;
  // membership_circle.cc
  void seek_circles();
  void follow(Id, const Awaited*, Search);
  void found(const Search&);

  const int64_t world_;
  const bool spin_;
  std::chrono::milliseconds timeout_{0};
  std::vector<Thread> threads_;
  std::vector<Rank> ranks_;
  // One thread at a time searches for circles. Locked before mutex_.
  std::mutex seeking_;
  Clock::time_point sought_;
  uint64_t searches_ = 0;
  std::mutex mutex_;
  std::array<Lane, Backend::kLanes> lanes_;
};

}  // namespace dtensor
