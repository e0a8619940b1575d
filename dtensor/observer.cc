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

void Observers::ran(RankContext& context, const OpRan& op) {
  for (Observer* o : all_) o->ran(context, op);
}

void Observers::ran(RankContext& context, const KernelRan& kernel) {
  for (Observer* o : all_) o->ran(context, kernel);
}

void Observers::sent(RankContext& context) {
  for (Observer* o : all_) o->sent(context);
}

void Observers::span(RankContext& context, int64_t begin, std::string_view name,
                     int64_t number) {
  for (Observer* o : std::views::reverse(all_))
    o->span(context, begin, name, number);
}

void Observers::step_begins(RankContext& context,
                            std::span<const NamedTensor> parameters) {
  for (Observer* o : all_) o->step_begins(context, parameters);
}

void Observers::ended(RankContext& context) {
  for (Observer* o : all_) o->ended(context);
}

bool Observers::reads_events(const RankContext& context) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Observer* o) {
    return o->reads_events(context);
  });
}

Observing::Observing(RankContext& context, Observer& observer)
    : context_(context), observer_(observer) {
  context_.observers.add(observer_);
}

Observing::~Observing() { context_.observers.remove(observer_); }

}  // namespace dtensor
