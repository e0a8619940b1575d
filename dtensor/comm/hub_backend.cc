#include "dtensor/comm/hub_backend.h"

#include <algorithm>
#include <cstring>

#include "dtensor/comm/thread_rendezvous.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class ThreadAgreementChannel final : public AgreementChannel {
 public:
  ThreadAgreementChannel(ThreadHub& hub, Group& group, int index)
      : rendezvous_(hub, group, index) {}
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

HubBackend::HubBackend(int64_t world) : first_(world), second_(world) {
  first_.set_companion(second_);
}

void HubBackend::set_timeout(std::chrono::milliseconds timeout) {
  for (ThreadHub* h : {&first_, &second_}) h->set_timeout(timeout);
}

std::chrono::nanoseconds HubBackend::waited_for(int64_t rank) {
  return std::chrono::nanoseconds(waited(rank, 0).total);
}

void HubBackend::failed(int64_t rank, int lane,
                        std::string_view what) noexcept {
  hub(lane).failed(rank, what);
}

void HubBackend::left(int64_t rank) noexcept {
  for (ThreadHub* h : {&first_, &second_}) h->left(rank);
}

void HubBackend::set_idle(int64_t rank, int lane, bool idle) noexcept {
  hub(lane).set_idle(rank, idle);
}

std::unique_ptr<AgreementChannel> HubBackend::agreement_channel(
    std::span<const int64_t> ranks, int64_t me, int lane) {
  const Membership place = join(ranks, me, lane);
  return std::make_unique<ThreadAgreementChannel>(place.hub, place.group,
                                                  place.index);
}

HubBackend::Membership HubBackend::join(std::span<const int64_t> ranks,
                                        int64_t me, int lane) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} asks for a group of which it is not a member", me);
  ThreadHub& own = hub(lane);
  return {own, own.group({ranks.begin(), ranks.end()}),
          static_cast<int>(at - ranks.begin())};
}

}  // namespace dtensor
