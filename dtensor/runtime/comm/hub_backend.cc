#include "dtensor/runtime/comm/hub_backend.h"

#include <algorithm>

#include "dtensor/placement/error.h"

namespace dtensor {

HubBackend::HubBackend(int64_t world) : first_(world), second_(world) {
  first_.set_companion(second_);
}

void HubBackend::set_timeout(std::chrono::milliseconds timeout) {
  for (ThreadHub* h : {&first_, &second_}) h->set_timeout(timeout);
}

std::chrono::nanoseconds HubBackend::waited_for(int64_t rank) {
  return std::chrono::nanoseconds(first_.waited_for(rank));
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
