#include "dtensor/comm/hub_backend.h"

#include <algorithm>
#include <cstring>

#include "dtensor/comm/thread_rendezvous.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class ThreadAgreementChannel final : public AgreementChannel {
 public:
  ThreadAgreementChannel(Membership& run, Group& group, int index)
      : rendezvous_(run, group, index) {}
  void open(const Collective& c, const void* mine, int64_t bytes) override {
    static_assert(kMost <= Slot::kSmall);
    if (bytes > 0)
      std::memcpy(rendezvous_.own(c.sequence).small, mine,
                  static_cast<size_t>(bytes));
    rendezvous_.open(c);
  }
  const void* shown(int m) const override { return rendezvous_.small_of(m); }
  void gather(const void*, int64_t bytes, void* out) override {
    rendezvous_.gather(bytes, out);
  }

 private:
  ThreadRendezvous rendezvous_;
};

}  // namespace

std::unique_ptr<AgreementChannel> HubBackend::agreement_channel(
    std::span<const int64_t> ranks, int64_t me, int lane) {
  const Place place = join(ranks, me, lane);
  return std::make_unique<ThreadAgreementChannel>(run_, place.group,
                                                  place.index);
}

HubBackend::Place HubBackend::join(std::span<const int64_t> ranks, int64_t me,
                                   int lane) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} asks for a group of which it is not a member", me);
  return {run_.group({ranks.begin(), ranks.end()}, lane),
          static_cast<int>(at - ranks.begin())};
}

}  // namespace dtensor
