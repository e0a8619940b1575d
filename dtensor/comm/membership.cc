#include "dtensor/comm/membership.h"

#include <algorithm>
#include <optional>
#include <thread>

#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {

Membership::Membership(int64_t world)
    : world_(world),
      spin_(world <= static_cast<int64_t>(std::thread::hardware_concurrency())),
      threads_(static_cast<size_t>(world * Backend::kLanes)),
      ranks_(static_cast<size_t>(world)) {
  for (int64_t r = 0; r < world; ++r) thread(r, 1).idle = true;
}

Group& Membership::group(const std::vector<int64_t>& ranks, int lane_number) {
  std::vector<int> members;
  for (size_t m = 0; m < ranks.size(); ++m) {
    DT_CHECK(ranks[m] >= 0 && ranks[m] < world_, "communicator",
             "rank {} is not in a run of {} ranks", ranks[m], world_);
    members.push_back(static_cast<int>(m));
  }
  DT_CHECK(members.size() <= Barrier::kMaxMembers, "communicator",
           "{} thread ranks do not fit into one group of at most {}",
           members.size(), Barrier::kMaxMembers);
  std::lock_guard lock(mutex_);
  Lane& l = lane(lane_number);
  if (const auto it = l.groups.find(ranks); it != l.groups.end())
    return *it->second;
  auto made =
      std::make_unique<Group>(ranks, std::move(members), lane_number, spin_);
  bool broken = l.failed;
  for (int64_t r : ranks) broken |= gone(r, lane_number);
  if (broken) made->barrier.break_up();
  return *l.groups.emplace(ranks, std::move(made)).first->second;
}

// ---- What a rank called last ----

// In this order, so that a thread that reads a call as the last one also sees
// that the rank has come to it.
void Membership::note(const Group& group, size_t place, const Call& call,
                      uint64_t sequence) {
  group.slot(place, sequence)
      .sequence.store(sequence, std::memory_order_release);
  thread(group, place).last.set(group, call.kind, sequence, call.op);
}

// Whether a rank has come to that collective.
bool Membership::has_come(const Awaited& awaited, int64_t rank) {
  std::lock_guard lock(mutex_);
  const auto& groups = lane(awaited.lane).groups;
  const auto it = groups.find(awaited.group);
  if (it == groups.end()) return false;
  const auto at = std::ranges::find(awaited.group, rank);
  const Group& group = *it->second;
  return group.has_come(
      group.place(static_cast<int>(at - awaited.group.begin())),
      awaited.sequence);
}

// Why others wait for a rank. A rank's second thread comes once
// its first thread has given it work, so an idle second thread is explained by
// the first.
std::string Membership::what_keeps(int64_t rank, int lane) {
  const Thread& t = thread(rank, lane);
  const LastCall::Value last = t.last.get();
  if (lane > 0 && (t.idle || !last.group)) return what_keeps(rank, 0);
  if (t.idle) return "it waits for its redistribute_async";
  if (!last.group) return "";
  return fmt::format("{} {} of ranks {}",
                     t.waits ? "it waits in" : "its last collective was",
                     call_to_string(last.kind, last.sequence, last.op),
                     ranks_to_string(last.group->ranks));
}

// Describes the collective in which `rank` waits.
std::string Membership::who_is_missing(int64_t rank, int lane) {
  const LastCall::Value me = thread(rank, lane).last.get();
  const Awaited awaited{me.group->ranks, lane, me.sequence};
  std::vector<int64_t> arrived;
  std::vector<Missing> missing;
  for (int64_t r : awaited.group)
    if (has_come(awaited, r))
      arrived.push_back(r);
    else
      missing.push_back({r, what_keeps(r, lane)});
  std::string call = call_to_string(me.kind, me.sequence, me.op);
  if (lane > 0) call += " (redistribute_async)";
  return fmt::format(
      "[{}] {}", name(me.kind),
      not_all_came(call, awaited.group, arrived, missing, timeout_));
}

// ---- Waiting ----

void Membership::meet(Group& group, size_t place) {
  Thread& me = thread(group, place);
  std::optional<TimeWaited> waited;
  const bool met = group.barrier.wait(me.waited_for, [&] {
    if (!waited) waited.emplace(Clock::now(), Barrier::kLate);
    me.waits = true;
    late(group.rank_at(place), group.lane, waited->look());
  });
  if (waited) me.waits = false;
  if (!met) released(group, place);
}

// The rank has waited for others for a while. It must not throw, because the
// rank counts as arrived in the barrier.
void Membership::late(int64_t rank, int lane_number,
                      Clock::duration waited) noexcept {
  try {
    if (lane(lane_number).failed) return;
    if (interrupted())
      fail_all(rank, interrupted_text());
    else if (timeout_.count() > 0 && waited >= timeout_)
      fail_all(rank, who_is_missing(rank, lane_number));
    else
      seek_circles();
  } catch (...) {
    // There is no memory for the text: the next check tries again.
  }
}

std::chrono::nanoseconds Membership::waited_for(int64_t rank) {
  return std::chrono::nanoseconds(thread(rank, 0).waited_for.total);
}

void Membership::released(const Group& group, size_t place) {
  const int64_t rank = group.rank_at(place);
  const LastCall::Value me = thread(group, place).last.get();
  std::lock_guard lock(mutex_);
  check_interrupted();
  const Lane& l = lane(group.lane);
  if (l.failed) l.failure.raise(name(me.kind));
  for (int64_t r : group.ranks)
    if (gone(r, group.lane))
      throw PeerLeft(name(me.kind), r, rank,
                     call_to_string(me.kind, me.sequence, me.op));
  fail(name(me.kind), "the group of ranks {} is broken",
       ranks_to_string(group.ranks));
}

// ---- Failing ----

void Membership::fail_lane(int lane_number, RankFailure failure) noexcept {
  Lane& l = lane(lane_number);
  std::lock_guard lock(mutex_);
  if (l.failed) return;
  l.failure = std::move(failure);
  l.failed = true;
  for (auto& [ranks, group] : l.groups) group->barrier.break_up();
}

void Membership::fail_all(int64_t rank, const std::string& text) noexcept {
  for (int lane = 0; lane < Backend::kLanes; ++lane)
    fail_lane(lane, {rank, text, true});
}

void Membership::mark_gone(int64_t rank, int lane_number) noexcept {
  gone(rank, lane_number) = true;
  std::lock_guard lock(mutex_);
  for (auto& [ranks, group] : lane(lane_number).groups)
    if (std::count(ranks.begin(), ranks.end(), rank)) group->barrier.break_up();
}

void Membership::failed(int64_t rank, int lane_number,
                        std::string_view what) noexcept {
  RankFailure failure{rank, {}};
  try {
    const LastCall::Value last = thread(rank, lane_number).last.get();
    failure.why = fmt::format(
        "{} ({})", what,
        last.group ? "its last collective was " +
                         call_to_string(last.kind, last.sequence, last.op)
                   : "it had called no collective");
  } catch (...) {  // there may be no memory left; a short text needs none
    failure.why = "out of memory";
  }
  fail_lane(lane_number, std::move(failure));
  mark_gone(rank, lane_number);
}

void Membership::left(int64_t rank) noexcept {
  for (int lane = 0; lane < Backend::kLanes; ++lane) mark_gone(rank, lane);
}

}  // namespace dtensor
