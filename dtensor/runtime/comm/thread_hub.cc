#include "dtensor/runtime/comm/thread_hub.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace dtensor {
namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  const size_t n = std::min(from.size(), N - 1);
  if (n > 0) std::memcpy(to, from.data(), n);
  to[n] = 0;
}

}  // namespace

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

void ThreadHub::note(int64_t rank, const Call& call, uint64_t sequence) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.kind = call.kind;
  copy_text(r.op, call.op);
  r.sequence = sequence;
}

std::string ThreadHub::last_call(int64_t rank) const {
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  std::string text = fmt::format("{} #{}", name(r.kind), r.sequence);
  if (*r.op) text += fmt::format(" for {}", r.op);
  return text;
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
    text = fmt::format("{} ({})", what,
                       r.sequence ? "its last collective was " + last_call(rank)
                                  : std::string("it had called no collective"));
  } catch (...) {  // there may be no memory left; few letters need none
    text = "out of memory";
  }
  failure_ = Failure{rank, std::move(text)};
  fail_all();
}

void ThreadHub::fail_all() noexcept {
  for (auto& [members, group] : groups_) group->barrier.break_up();
}

void ThreadHub::meet(Group& group, int64_t rank, const Call& call) {
  bool noted = false;
  const bool met = group.barrier.wait([&](uint32_t round) {
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
    look_for_deadlock(group, round, rank);
  } catch (...) {
    // No memory for a text: it looks again.
  }
}

void ThreadHub::look_for_deadlock(const Group& group, uint32_t round,
                                  int64_t rank) {
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
    me.last = last_call(rank);
    me.waits_in = &group;
    me.round = round;
  }
  if (failure_) return;
  if (!all_wait() || (companion_ && !companion_->all_wait())) return;
  std::string text = who_waits_where();
  if (companion_) {
    const std::string more = companion_->who_waits_where();
    if (!more.empty()) text = second_ ? more + "; " + text : text + "; " + more;
  }
  const std::string what = fmt::format(
      "every rank waits for another one: {}; let all ranks run the same "
      "operators in the same order",
      text);
  for (ThreadHub* hub : {this, companion_}) {
    if (!hub || hub->failure_) continue;
    hub->failure_ = Failure{rank, what, me.kind};
    hub->fail_all();
  }
}

// A round that is not complete completes only when one more rank comes. When
// every rank that is still here waits in such a one, none will. (A round that
// is over is seen as such: there is no other one without this member.)
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
                          second_ ? "'s redistribute_async" : "", r.last,
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

void ThreadHub::released(const Group& group, int64_t rank, const Call& call) {
  std::lock_guard lock(mutex_);
  if (failure_ && failure_->everybodys)
    fail(name(*failure_->everybodys), "{}", failure_->what);
  if (failure_)
    throw PeerFailed(name(call.kind), failure_->rank, failure_->what);
  for (int64_t r : group.ranks)
    if (ranks_[static_cast<size_t>(r)].gone)
      throw PeerLeft(name(call.kind), r, rank, last_call(rank));
  fail(name(call.kind), "the group of ranks {} is broken",
       ranks_to_string(group.ranks));
}

}  // namespace dtensor
