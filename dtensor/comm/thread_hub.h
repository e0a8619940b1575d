// What the thread ranks of one run share: their groups, and who has failed.
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
#include "dtensor/comm/last_call.h"
#include "dtensor/comm/thread_rendezvous.h"

namespace dtensor {

// Who waits for whom, and who is gone. A rank may have a second thread, which
// communicates by itself: those of all ranks have a hub of their own, the other
// one's companion.
class ThreadHub {
 public:
  explicit ThreadHub(int64_t world);
  // The hub of second threads, none of which has anything to do yet. It lives
  // as long as this one. Before either is used.
  void set_companion(ThreadHub&);
  // How long a rank may wait in a round before that is everybody's end; 0: for
  // ever, as without it. Looked at every Barrier::kLate. Before it is used.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;

  // The group of these ranks in this order; the same one for all of them.
  Group& group(const std::vector<int64_t>& world_ranks);

  // Remembers for errors that the member has come to the call. By its own
  // thread only.
  void note(const Group&, size_t member, const Call&, uint64_t sequence);
  LastCall::Value last(int64_t rank) const { return of(rank).last.get(); }
  // Whether the rank, one of the group's, has come to that collective.
  bool has_come(const std::vector<int64_t>& group, int64_t rank,
                uint64_t sequence);

  // Called by a rank that is done. Those that wait for it, or will, are
  // released with a PeerLeft; with failed() all that wait for anybody are, with
  // a PeerFailed.
  void left(int64_t rank) noexcept;
  void failed(int64_t rank, std::string_view what) noexcept;
  // The same with these very words; `everybodys`: all throw them as they are.
  void stop(int64_t rank, std::string why, bool everybodys) noexcept;

  // While set, the rank's thread waits for its thread in the companion: for the
  // result of work, or for work. It is set before that begins and reset before
  // it can end, so that a circle of waiting is told from one that is about to
  // open.
  void set_idle(int64_t rank, bool) noexcept;
  bool is_idle(int64_t rank);

  // How long others slept in rounds that this rank completed. By the rank's own
  // thread, or when it has ended.
  Waited& waited_for(int64_t rank) {
    return ranks_[static_cast<size_t>(rank)].waited_for;
  }

  // Waits until all members of the group have come, as `rank`. Throws the
  // Error that says why they will not.
  void meet(Group&, int64_t rank, const Call&);

  // Notes that `rank` waits in a round, for kLate already; when all do, or when
  // it has waited for too long, that is the end of the run. (Called where a
  // rank counts as come: it may not leave by an exception.)
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
    // How long, and when it last looked: a process that is stopped for a while
    // looks too seldom, and its ranks have not waited.
    Clock::duration waited;
    Clock::time_point looked;
  };
  const Rank& of(int64_t rank) const {
    return ranks_[static_cast<size_t>(rank)];
  }
  std::string last_call(int64_t rank) const;
  void look(const Group&, uint32_t round, int64_t rank);
  [[noreturn]] void released(const Group&, int64_t rank, const Call&);
  void fail_all() noexcept;
  // With the mutexes of both held.
  void fail_both(int64_t rank, const std::string& text);
  bool all_wait() const;
  std::string who_waits_where() const;
  std::string who_is_missing(const Group&, int64_t rank) const;
  std::string what_keeps(int64_t rank) const;

  const bool spin_;
  std::chrono::milliseconds timeout_{0};
  ThreadHub* companion_ = nullptr;
  bool second_ = false;  // of second threads
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups_;
  // The first failure: of a rank, or everybody's, who all throw this text.
  struct Failure {
    int64_t rank;
    std::string what;
    bool everybodys = false;
  };
  std::optional<Failure> failure_;
};

}  // namespace dtensor
