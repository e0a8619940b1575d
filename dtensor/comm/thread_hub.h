// What the thread ranks of one run share: their groups, and who has failed.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dtensor/comm/barrier.h"
#include "dtensor/comm/communicator.h"
#include "placement/error.h"

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
  int dtype, reduce_op;  // -1: none
  int64_t count;         // elements or bytes, -1: not a number
  const void* data;      // what the method shares
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

class ThreadHub {
 public:
  explicit ThreadHub(int64_t world);
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
    const Group* waits_in = nullptr;
    uint32_t round = 0;
    std::string last;  // last_call(), while it waits
  };
  std::string last_call(int64_t rank) const;
  // Notes that `rank` waits; when all do, that is the end of the run.
  void late(const Group&, uint32_t round, int64_t rank);
  [[noreturn]] void released(const Group&, int64_t rank, const Call&);
  void fail_all(std::string what);

  const bool spin_;
  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::vector<int64_t>, std::unique_ptr<Group>> groups_;
  std::string failure_;        // of the first rank that failed
  std::string deadlock_kind_;  // set when the failure is everybody's
};

}  // namespace dtensor
