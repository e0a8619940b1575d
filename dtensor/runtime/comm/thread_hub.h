// What the thread ranks of one run share: their groups, and who has failed.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/runtime/comm/barrier.h"
#include "dtensor/runtime/comm/communicator.h"

namespace dtensor {

// Thrown in ranks that waited for one that failed. Not a failure of their own:
// run() reports the other.
class PeerFailure : public Error {
 public:
  using Error::Error;
};

// What a member shows the others. It has two, used in turn: when it writes one
// again, all members have met for the other, and so have done with this one.
struct alignas(64) Slot {
  static constexpr int64_t kSmall = 1024;

  uint64_t fingerprint;
  const Call* call;
  std::string_view method;
  // What the method shares; the others are empty.
  std::span<const Transfer> transfers;
  std::span<const Buffer> buffers;
  const void* bytes;
  int64_t num_bytes;  // -1: no bytes
  alignas(64) char small[kSmall];
};

struct Group {
  Group(std::vector<int64_t> world_ranks, bool spin)
      : ranks(std::move(world_ranks)),
        barrier(static_cast<int>(ranks.size()), spin),
        members(std::make_unique<Member[]>(ranks.size())) {}

  struct alignas(64) Member {
    Slot slots[2];
    uint64_t sequence = 0;  // of this member alone
  };
  const std::vector<int64_t> ranks;
  Barrier barrier;
  const std::unique_ptr<Member[]> members;

  std::string ranks_to_string() const;
};

//
// A rank may have a second thread, which communicates by itself: those of all
// ranks have a hub of their own, the other one's companion.
class ThreadHub {
 public:
  explicit ThreadHub(int64_t world);
  // The hub of second threads, none of which has anything to do yet. It lives
  // as long as this one. Before either is used.
  void set_companion(ThreadHub&);
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;

  // The group of these ranks in this order; the same one for all of them.
  Group& group(const std::vector<int64_t>& world_ranks);

  // Remembers the call for errors. By the rank's own thread only.
  void note(int64_t rank, const Call&, uint64_t sequence);

  // Called by a rank that is done. Those that wait for it, or will, are
  // released with an Error; with failed() all that wait for anybody are.
  void left(int64_t rank);
  void failed(int64_t rank, std::string_view what);

  // While set, the rank's thread waits for its thread in the companion: for the
  // result of work, or for work. It is set before that begins and reset before
  // it can end, so that a circle of waiting is told from one that is about to
  // open.
  void set_idle(int64_t rank, bool);

  // Waits until all members of the group have come, as `rank`. Throws the
  // Error that says why they will not.
  void meet(Group&, int64_t rank, const Call&);

 private:
  struct alignas(64) Rank {
    // The last call, copied: its texts may be gone when they are needed.
    char kind[32] = "", op[64] = "";
    uint64_t sequence = 0;
    // Guarded by mutex_.
    bool gone = false;
    bool idle = false;
    const Group* waits_in = nullptr;
    uint32_t round = 0;
    std::string last;  // last_call(), while it waits
  };
  std::string last_call(int64_t rank) const;
  // Notes that `rank` waits; when all do, that is the end of the run.
  void late(const Group&, uint32_t round, int64_t rank);
  [[noreturn]] void released(const Group&, int64_t rank, const Call&);
  void fail_all(std::string what);
  // With the mutexes of both held.
  bool all_wait() const;
  std::string who_waits_where() const;

  const bool spin_;
  ThreadHub* companion_ = nullptr;
  bool second_ = false;  // of second threads
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups_;
  std::string failure_;        // of the first rank that failed
  std::string deadlock_kind_;  // set when the failure is everybody's
};

}  // namespace dtensor
