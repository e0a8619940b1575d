#include "dtensor/comm/thread_hub.h"

#include <algorithm>
#include <thread>

#include "dtensor/interrupt.h"

namespace dtensor {

ThreadHub::ThreadHub(int64_t world)
    : spin_(world <= static_cast<int64_t>(std::thread::hardware_concurrency())),
      ranks_(static_cast<size_t>(world)) {}

Group& ThreadHub::group(const std::vector<int64_t>& world_ranks) {
  DT_CHECK(world_ranks.size() <= Barrier::kMaxMembers, "communicator",
           "{} thread ranks do not fit into one group of at most {}",
           world_ranks.size(), Barrier::kMaxMembers);
  for (int64_t r : world_ranks)
    DT_CHECK(r >= 0 && r < static_cast<int64_t>(ranks_.size()), "communicator",
             "rank {} is not in a run of {} ranks", r, ranks_.size());
  std::lock_guard lock(mutex_);
  if (const auto it = groups_.find(world_ranks); it != groups_.end())
    return *it->second;
  auto made = std::make_unique<Group>(world_ranks, spin_);
  bool broken = failure_.has_value();
  for (int64_t r : world_ranks) broken |= ranks_[static_cast<size_t>(r)].gone;
  if (broken) made->barrier.break_up();
  return *groups_.emplace(world_ranks, std::move(made)).first->second;
}

// In this order, so that a thread that reads a call as the last one also sees
// that the rank has come to it.
void ThreadHub::note(const Group& group, size_t member, const Call& call,
                     uint64_t sequence) {
  group.slot(member, sequence)
      .sequence.store(sequence, std::memory_order_release);
  ranks_[static_cast<size_t>(group.ranks[member])].last.set(group, call.kind,
                                                            sequence, call.op);
}

bool ThreadHub::has_come(const std::vector<int64_t>& group, int64_t rank,
                         uint64_t sequence) {
  std::lock_guard lock(mutex_);
  const auto it = groups_.find(group);
  if (it == groups_.end()) return false;
  const auto at = std::find(group.begin(), group.end(), rank);
  return it->second->has_come(static_cast<size_t>(at - group.begin()),
                              sequence);
}

// Empty if there was none.
std::string ThreadHub::last_call(int64_t rank) const {
  const LastCall::Value last = of(rank).last.get();
  return last.group ? call_to_string(last.kind, last.sequence, last.op) : "";
}

void ThreadHub::left(int64_t rank) noexcept {
  std::lock_guard lock(mutex_);
  ranks_[static_cast<size_t>(rank)].gone = true;
  for (auto& [members, group] : groups_)
    if (std::find(members.begin(), members.end(), rank) != members.end())
      group->barrier.break_up();
}

void ThreadHub::failed(int64_t rank, std::string_view what) noexcept {
  std::lock_guard lock(mutex_);
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.gone = true;
  if (failure_) return;
  std::string text;
  try {
    const std::string last = last_call(rank);
    text = fmt::format("{} ({})", what,
                       last.empty() ? "it had called no collective"
                                    : "its last collective was " + last);
  } catch (...) {  // there may be no memory left; a short text needs none
    text = "out of memory";
  }
  failure_ = Failure{rank, std::move(text)};
  fail_all();
}

void ThreadHub::stop(int64_t rank, std::string why, bool everybodys) noexcept {
  std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = Failure{rank, std::move(why), everybodys};
  fail_all();
}

void ThreadHub::fail_all() noexcept {
  for (auto& [members, group] : groups_) group->barrier.break_up();
}

void ThreadHub::meet(Group& group, int64_t rank, const Call& call) {
  bool noted = false;
  const bool met = group.barrier.wait(waited_for(rank), [&](uint32_t round) {
    noted = true;
    late(group, round, rank);
  });
  if (noted) {
    std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].waits_in = nullptr;
  }
  if (!met) released(group, rank, call);
}

void ThreadHub::late(const Group& group, uint32_t round,
                     int64_t rank) noexcept {
  try {
    look(group, round, rank);
  } catch (...) {
    // There is no memory for the text: the next check tries again.
  }
}

void ThreadHub::look(const Group& group, uint32_t round, int64_t rank) {
  std::unique_lock lock(mutex_, std::defer_lock);
  std::unique_lock<std::mutex> other;
  if (companion_) {
    other = std::unique_lock(companion_->mutex_, std::defer_lock);
    std::lock(lock, other);
  } else {
    lock.lock();
  }
  Rank& me = ranks_[static_cast<size_t>(rank)];
  if (!me.waits_in) {
    me.waits_in = &group;
    me.round = round;
    me.waited = TimeWaited(Clock::now(), Barrier::kLate);
  }
  const Clock::duration waited = me.waited.look();
  if (failure_) return;
  if (interrupted()) return fail_both(rank, interrupted_text());
  const std::string_view where = name(me.last.get().kind);
  if (timeout_.count() > 0 && waited >= timeout_)
    return fail_both(
        rank, fmt::format("[{}] {}", where, who_is_missing(group, rank)));
  if (!all_wait() || (companion_ && !companion_->all_wait())) return;
  std::string text = who_waits_where();
  if (companion_) {
    const std::string more = companion_->who_waits_where();
    if (!more.empty()) text = second_ ? more + "; " + text : text + "; " + more;
  }
  fail_both(rank, fmt::format("[{}] {}", where, wait_for_each_other({}, text)));
}

void ThreadHub::fail_both(int64_t rank, const std::string& text) {
  for (ThreadHub* hub : {this, companion_}) {
    if (!hub || hub->failure_) continue;
    hub->failure_ = Failure{rank, text, true};
    hub->fail_all();
  }
}

// Describes the round in which `rank` waits.
std::string ThreadHub::who_is_missing(const Group& group, int64_t rank) const {
  const LastCall::Value mine = of(rank).last.get();
  std::vector<int64_t> arrived;
  std::vector<Missing> missing;
  for (int64_t r : group.ranks) {
    const LastCall::Value last = of(r).last.get();
    if (last.group == &group && last.sequence == mine.sequence)
      arrived.push_back(r);
    else
      missing.push_back({r, what_keeps(r)});
  }
  std::string call = call_to_string(mine.kind, mine.sequence, mine.op);
  if (second_) call += " (redistribute_async)";
  return not_all_came(call, group.ranks, arrived, missing, timeout_);
}

// A rank's second thread comes once its first thread has given it work, so an
// idle second thread is explained by the first.
std::string ThreadHub::what_keeps(int64_t rank) const {
  const Rank& r = of(rank);
  const LastCall::Value last = r.last.get();
  if (second_ && (r.idle || !last.group)) return companion_->what_keeps(rank);
  if (r.idle) return "it waits for its redistribute_async";
  if (!last.group) return "";
  return fmt::format("{} {} of ranks {}",
                     r.waits_in && r.waits_in->barrier.round() == r.round
                         ? "it waits in"
                         : "its last collective was",
                     call_to_string(last.kind, last.sequence, last.op),
                     ranks_to_string(last.group->ranks));
}

// An incomplete round completes only when one more rank comes, and that is
// impossible if every remaining rank waits in an incomplete round. A round
// that is over is recognized by its number: no further round can complete
// without the same member.
bool ThreadHub::all_wait() const {
  for (const Rank& r : ranks_) {
    if (r.gone || r.idle) continue;
    if (!r.waits_in) return false;
    const Barrier& b = r.waits_in->barrier;
    if (b.round() != r.round || b.broken()) return false;
  }
  return true;
}

std::string ThreadHub::who_waits_where() const {
  std::string text;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    if (r.gone || (r.idle && second_)) continue;
    if (!text.empty()) text += "; ";
    if (r.idle)
      text += fmt::format("rank {} for its redistribute_async", i);
    else
      text += fmt::format("rank {}{} in {} of ranks {}", i,
                          second_ ? "'s redistribute_async" : "",
                          last_call(static_cast<int64_t>(i)),
                          ranks_to_string(r.waits_in->ranks));
  }
  return text;
}

void ThreadHub::set_companion(ThreadHub& other) {
  companion_ = &other;
  other.companion_ = this;
  other.second_ = true;
  for (Rank& r : other.ranks_) r.idle = true;
}

void ThreadHub::set_idle(int64_t rank, bool idle) noexcept {
  std::lock_guard lock(mutex_);
  ranks_[static_cast<size_t>(rank)].idle = idle;
}

bool ThreadHub::is_idle(int64_t rank) {
  std::lock_guard lock(mutex_);
  return of(rank).idle;
}

void ThreadHub::released(const Group& group, int64_t rank, const Call& call) {
  check_interrupted();
  std::lock_guard lock(mutex_);
  if (failure_ && failure_->everybodys) throw Error(failure_->what);
  if (failure_)
    throw PeerFailed(name(call.kind), failure_->rank, failure_->what);
  for (int64_t r : group.ranks)
    if (ranks_[static_cast<size_t>(r)].gone)
      throw PeerLeft(name(call.kind), r, rank, last_call(rank));
  fail(name(call.kind), "the group of ranks {} is broken",
       ranks_to_string(group.ranks));
}

}  // namespace dtensor
