// SPDX-License-Identifier: Apache-2.0
#include "dtensor/observer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <ranges>

#include "dtensor/rank_context.h"

namespace dtensor {

int64_t Observers::now() const {
  if (all_.empty()) return -1;
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

void Observers::remove(const Observer& observer) {
  const auto last = std::find(all_.rbegin(), all_.rend(), &observer);
  all_.erase(std::prev(last.base()));
}

void Observers::follow(RankContext& second) const {
  for (Observer* o : all_)
    if (Observer* const other = o->for_second_thread(second))
      second.observers.add(*other);
}

void Observers::begins(const Collective& c) {
  for (Observer* o : all_) o->begins(c);
}

void Observers::agreed(const Collective& c) noexcept {
  for (Observer* o : std::views::reverse(all_)) o->agreed(c);
}

void Observers::ends(const Collective& c) noexcept {
  for (Observer* o : std::views::reverse(all_)) o->ends(c);
}

bool Observers::read_events(const RankContext& context) const {
  return std::any_of(begin(), end(), [&](const Observer* o) {
    return o->reads_events(context);
  });
}

Observing::Observing(RankContext& context, Observer& observer)
    : context_(context), observer_(observer) {
  context_.observers.add(observer_);
}

Observing::~Observing() { context_.observers.remove(observer_); }

}  // namespace dtensor
