#include "dtensor/comm/hub_backend.h"

#include <algorithm>
#include <cstring>

#include "dtensor/comm/meeting.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class MeetingCouncil final : public Council {
 public:
  MeetingCouncil(ThreadHub& hub, Group& group, int index)
      : meeting_(hub, group, index) {}
  void open(const Collective& c, const void* mine, int64_t bytes) override {
    static_assert(kMost <= Slot::kSmall);
    if (bytes > 0)
      std::memcpy(meeting_.own(c.sequence).small, mine,
                  static_cast<size_t>(bytes));
    meeting_.open(c);
  }
  const void* shown(int m) const override { return meeting_.small_of(m); }
  void gather(const void*, int64_t bytes, void* out) override {
    meeting_.gather(bytes, out);
  }

 private:
  Meeting meeting_;
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

std::unique_ptr<Council> HubBackend::council(std::span<const int64_t> ranks,
                                             int64_t me, int lane) {
  const Seat seat = take_seat(ranks, me, lane);
  return std::make_unique<MeetingCouncil>(seat.hub, seat.group, seat.index);
}

HubBackend::Seat HubBackend::take_seat(std::span<const int64_t> ranks,
                                       int64_t me, int lane) {
  const auto at = std::find(ranks.begin(), ranks.end(), me);
  DT_CHECK(at != ranks.end(), "communicator",
           "rank {} is not a member of the group that it asks for", me);
  ThreadHub& own = hub(lane);
  return {own, own.group({ranks.begin(), ranks.end()}),
          static_cast<int>(at - ranks.begin())};
}

}  // namespace dtensor
