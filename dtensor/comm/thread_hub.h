// The state that the thread ranks of one run share: their groups, which ranks
// wait for which, and which have failed.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/barrier.h"
#include "dtensor/comm/last_call.h"
#include "dtensor/comm/thread_rendezvous.h"

namespace dtensor {

// A rank may have a second thread that communicates by itself. The second
// threads of all ranks have a hub of their own, the companion of the first one.
class ThreadHub {
 public:
  explicit ThreadHub(int64_t world);
  // Sets the hub of the second threads, which are all idle at first. It lives
  // as long as this one. Called before either is used.
  void set_companion(ThreadHub&);
  // How long a rank may wait in a round before all ranks fail; 0, the default,
  // means no limit. Checked every Barrier::kLate. Called before the hub is
  // used.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;

  // The group of these ranks in this order; one object for all of them.
  Group& group(const std::vector<int64_t>& world_ranks);

  // Records for errors that the member has come to the call. By the member's
  // own thread only.
  void note(const Group&, size_t member, const Call&, uint64_t sequence);
  LastCall::Value last(int64_t rank) const { return of(rank).last.get(); }
  // Whether the rank, a member of the group, has come to that collective.
  bool has_come(const std::vector<int64_t>& group, int64_t rank,
                uint64_t sequence);

  // left(): the rank has finished. Ranks that wait for it, now or later, throw
  // a PeerLeft. failed(): the rank has failed. All ranks that wait for any rank
  // throw a PeerFailed.
  void left(int64_t rank) noexcept;
  void failed(int64_t rank, std::string_view what) noexcept;
  // As failed(), with exactly this text; if `everybodys`, all ranks throw it as
  // their own error.
  void stop(int64_t rank, std::string why, bool everybodys) noexcept;

  // While set, the rank's thread waits for its thread in the companion: for a
  // result, or for work. Set it before that wait begins and reset it before the
  // wait can end, so that deadlock detection never counts a wait that is about
  // to end.
  void set_idle(int64_t rank, bool) noexcept;
  bool is_idle(int64_t rank);

  // The time for which others slept in rounds that this rank completed. By the
  // rank's own thread, or after it has ended.
  Waited& waited_for(int64_t rank) {
    return ranks_[static_cast<size_t>(rank)].waited_for;
  }

  // Waits, as `rank`, until all members of the group have come. Throws the
  // Error that says why they will not.
  void meet(Group&, int64_t rank, const Call&);

  // Notes that `rank` has waited in a round for at least kLate. If all ranks
  // wait, or this one has waited too long, the run fails. It must not throw,
  // because the caller counts as arrived in the barrier.
  void late(const Group&, uint32_t round, int64_t rank) noexcept;

 private:
  using Clock = std::chrono::steady_clock;

  struct alignas(64) Rank {
    LastCall last;
    Waited waited_for;
    // Guarded by mutex_.
    bool gone = false;
    bool idle = false;
    const Group* waits_in = nullptr;
    uint32_t round = 0;
    TimeWaited waited;
  };
  const Rank& of(int64_t rank) const {
    return ranks_[static_cast<size_t>(rank)];
  }
  std::string last_call(int64_t rank) const;
  void look(const Group&, uint32_t round, int64_t rank);
  [[noreturn]] void released(const Group&, int64_t rank, const Call&);
  void fail_all() noexcept;
  // With both mutexes held.
  void fail_both(int64_t rank, const std::string& text);
  bool all_wait() const;
  std::string who_waits_where() const;
  std::string who_is_missing(const Group&, int64_t rank) const;
  std::string what_keeps(int64_t rank) const;

  const bool spin_;
  std::chrono::milliseconds timeout_{0};
  ThreadHub* companion_ = nullptr;
  bool second_ = false;  // the hub of second threads
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups_;
  // The first failure: of one rank, or of all ranks, which then all throw this
  // text.
  struct Failure {
    int64_t rank;
    std::string what;
    bool everybodys = false;
  };
  std::optional<Failure> failure_;
};

}  // namespace dtensor
