// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/membership.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "dtensor/comm/checked_messages.h"
#include "dtensor/comm/pack.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// How often a process reads control messages while its ranks compute, and how
// often it looks at what its ranks do.
constexpr auto kListen = 5ms, kLook = 100ms;
// The longest ProcessJob::rest() of a waiting thread between two checks.
constexpr auto kRest = 500us;
// For how long a rank still waits for a message after the news that the
// message's sender is gone.
constexpr auto kStraggles = 20ms;
// For how long a rank still waits for messages after the failure of a rank that
// does not send any of them.
constexpr auto kGrace = 500ms;
// How long other processes may take to answer whether their ranks have come.
constexpr auto kAnswer = 300ms;

std::vector<int> members_in(const std::vector<int64_t>& ranks,
                            int64_t ranks_per_process, int process) {
  std::vector<int> members;
  for (size_t m = 0; m < ranks.size(); ++m)
    if (ranks[m] / ranks_per_process == process)
      members.push_back(static_cast<int>(m));
  DT_CHECK(members.size() <= Barrier::kMaxMembers, "communicator",
           "{} ranks of one process do not fit into a group, which takes at "
           "most {} of them; run fewer ranks in a process",
           members.size(), Barrier::kMaxMembers);
  return members;
}

}  // namespace

// Marks a thread as waiting while the object exists.
class Membership::Waiting {
 public:
  Waiting(Thread& thread, Thread::Waits how) : waits_(thread.waits) {
    waits_.store(how, std::memory_order_relaxed);
  }
  ~Waiting() { waits_.store(Thread::Waits::kNot, std::memory_order_relaxed); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::atomic<Thread::Waits>& waits_;
};

Membership::Membership(int64_t world, int64_t ranks_per_process,
                       ProcessJob* job)
    : job_(job),
      world_(world),
      ranks_per_process_(job ? ranks_per_process : world),
      first_(std::min(process() * ranks_per_process_, world)),
      last_(std::min(first_ + ranks_per_process_, world)),
      spin_(world <= static_cast<int64_t>(std::thread::hardware_concurrency())),
      threads_(static_cast<size_t>((last_ - first_) * kLanes)),
      ranks_(static_cast<size_t>(world)) {
  for (int64_t r = first_; r < last_; ++r) thread(r, 1).idle = true;
  DT_CHECK(world <= processes() * ranks_per_process_, "run",
           "{} ranks do not fit into {} of {} each; start more "
           "processes, or set --ranks-per-process or "
           "DTENSOR_RANKS_PER_PROCESS to {}",
           world, quantity(processes(), "process", "processes"),
           ranks_per_process, (world + processes() - 1) / processes());
  if (job_) number_ = job_->begin_run(ranks_per_process_);
  if (job_ || world > 1)
    watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

Membership::~Membership() {
  watch_ = {};
  if (job_) job_->end_run(decided_ && !verdict_);
}

void Membership::set_timeout(std::chrono::milliseconds t) {
  timeout_ = t;
  if (job_) job_->set_patience(run_patience(t));
}

std::unique_ptr<PendingMessages> Membership::pending_messages() {
  auto made = job_->pending_messages();
  return checksum_ ? checked_messages(std::move(made)) : std::move(made);
}

Group::Group(std::vector<int64_t> world_ranks, int64_t ranks_per_process,
             int process, int lane_number, bool spin)
    : ranks(std::move(world_ranks)),
      lane(lane_number),
      members(members_in(ranks, ranks_per_process, process)),
      hash(ranks.size()),
      barrier(static_cast<int>(members.size()), spin),
      slots(std::make_unique<Slot[]>(2 * members.size())) {
  std::map<int64_t, std::vector<int>> all;  // the members in each process
  for (size_t m = 0; m < ranks.size(); ++m) {
    std::vector<int>& there = all[ranks[m] / ranks_per_process];
    place_of.push_back(there.size());
    there.push_back(static_cast<int>(m));
    most_members = std::max(most_members, there.size());
    hash = hash_mix(hash, static_cast<uint64_t>(ranks[m]));
  }
  peer_of.resize(ranks.size(), -1);
  for (auto& [at, there] : all) {
    if (at == process) continue;
    for (int m : there)
      peer_of[static_cast<size_t>(m)] = static_cast<int>(peers.size());
    peers.push_back({.members = std::move(there)});
  }
}

Group& Membership::members(const std::vector<int64_t>& ranks, int lane_number) {
  for (int64_t r : ranks)
    DT_CHECK(r >= 0 && r < world_, "communicator",
             "rank {} is not in a run of {}; name ranks from 0 to {}", r,
             quantity(world_, "rank", "ranks"), world_ - 1);
  std::lock_guard lock(mutex_);
  Lane& l = lane(lane_number);
  if (const auto it = l.groups.find(ranks); it != l.groups.end())
    return *it->second;
  auto made = std::make_unique<Group>(ranks, ranks_per_process_, process(),
                                      lane_number, spin_);
  bool broken = l.failed;
  for (int64_t r : ranks) broken |= gone(r, lane_number);
  if (broken) made->barrier.break_up();
  return *l.groups.emplace(ranks, std::move(made)).first->second;
}

// ---- What a rank called last ----

// Whether a rank of this process has come to that collective.
bool Membership::has_come(const Awaited& awaited, int64_t rank) {
  std::lock_guard lock(mutex_);
  const auto& groups = lane(awaited.lane).groups;
  const auto it = groups.find(awaited.group);
  if (it == groups.end()) return false;
  const auto at = std::ranges::find(awaited.group, rank);
  const Group& group = *it->second;
  return group.has_come(
      group.place_of[static_cast<size_t>(at - awaited.group.begin())],
      awaited.sequence);
}

std::pair<FlightEntry, std::vector<int64_t>> Membership::last_call(int64_t rank,
                                                                   int lane) {
  const FlightRing& flight = thread(rank, lane).flight;
  FlightEntry last = flight.newest();
  if (last.number == 0) return {};
  std::vector<int64_t> ranks = flight.group(last.group);
  return {std::move(last), std::move(ranks)};
}

// Returns a text about what keeps a rank of this process from a collective in a
// lane, or "" if the rank has called no collective. An idle second thread (lane
// 1) comes only when the rank's first thread gives it work, so the text is then
// about the first thread.
std::string Membership::what_keeps(int64_t rank, int lane) {
  const Thread& t = thread(rank, lane);
  const auto [last, ranks] = last_call(rank, lane);
  if (lane > 0 && (t.idle || last.number == 0)) return what_keeps(rank, 0);
  if (t.idle) return "it waits for its redistribute_async";
  if (last.number == 0) return "";
  return fmt::format("{} {} of ranks {}",
                     t.waits == Thread::Waits::kNot ? "its last collective was"
                                                    : "it waits in",
                     call_to_string(last.kind, last.sequence, last.op),
                     ranks_to_string(ranks));
}

// Returns the error text about the collective in which `rank` waits in vain.
// Asks the other processes where their ranks are.
std::string Membership::who_is_missing(int64_t rank, int lane) {
  const auto [me, ranks] = last_call(rank, lane);
  const Awaited awaited{ranks, lane, me.sequence};
  uint64_t question = 0;
  {
    std::lock_guard lock(mutex_);
    question = ++questions_;
  }
  tell_all([&] {
    return pack("where", question, lane, awaited.sequence, awaited.group);
  });
  const Clock::time_point end = Clock::now() + kAnswer;
  std::vector<int64_t> arrived;
  std::vector<Missing> missing;
  for (bool last = false; !last; std::this_thread::sleep_for(1ms)) {
    if (job_) listen();
    last = Clock::now() > end;
    arrived.clear();
    missing.clear();
    bool silent = false;
    for (int64_t r : awaited.group) {
      std::optional<Answer> answer;
      if (is_here(r)) {
        answer = {has_come(awaited, r), what_keeps(r, lane)};
      } else {
        std::lock_guard lock(mutex_);
        const auto told = answers_.find({question, r});
        if (told != answers_.end()) answer = told->second;
      }
      silent |= !answer;
      if (answer && answer->has_come)
        arrived.push_back(r);
      else
        missing.push_back(
            {r, answer ? answer->keeps : "its process does not answer"});
    }
    if (!silent) break;
  }
  std::string call = call_to_string(me.kind, me.sequence, me.op);
  if (lane > 0) call += " (redistribute_async)";
  return fmt::format(
      "[{}] {}", name(me.kind),
      not_all_came(call, awaited.group, arrived, missing, timeout()));
}

// ---- Waiting ----

void Membership::meet(Group& group, size_t place) {
  Thread& me = thread(group, place);
  const Waiting waits(me, Thread::Waits::kForThreads);
  if (!group.barrier.wait(me.waited_for)) released(group, place);
}

// Whether all messages are done. If the transport throws, as it does when one
// has arrived damaged, all ranks of the run fail.
bool Membership::done(PendingMessages& messages, const Group& group,
                      size_t place) {
  try {
    return messages.done();
  } catch (const Error& e) {
    const FlightEntry me = thread(group, place).flight.newest();
    messages.give_up();
    fail_all(group.rank_at(place),
             fmt::format("{} (in {} of ranks {})", e.what(),
                         call_to_string(me.kind, me.sequence, me.op),
                         ranks_to_string(group.ranks)));
    released(group, place);
  }
}

// At first, polls without looking at the clock, since most messages arrive
// within microseconds, and a look at the clock costs as much as a poll. Later,
// yields now and then to other ranks of this machine, and after 2 ms sleeps now
// and then: 50 us more do not matter to a wait of that length. With more ranks
// than processors, yields after every poll, or, if the job can rest(), sleeps
// after every poll from the start.
void Membership::wait(PendingMessages& messages, const Group& group,
                      size_t place) {
  constexpr int kQuick = 200, kOften = 64;
  if (done(messages, group, place)) return;
  const bool rests = !spin_ && job_->rest(0us);
  for (int i = 0; i < kQuick && !rests; ++i)
    if (done(messages, group, place)) return;
  const Waiting waits(thread(group, place), Thread::Waits::kForMessages);
  Lane& l = lane(group.lane);
  const Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> lost;
  int64_t awaited = -1;
  for (int64_t i = 0;; ++i) {
    if (done(messages, group, place)) {
      const Clock::time_point end = Clock::now();
      if (awaited >= 0 && end - start > 2ms && group.lane == 0) {
        std::lock_guard lock(waiting_);
        ranks_[static_cast<size_t>(awaited)].waited_for.add(
            start.time_since_epoch() / 1ns, end.time_since_epoch() / 1ns);
      }
      return;
    }
    if (rests)
      job_->rest(kRest);
    else if (!spin_)
      sched_yield();
    if (i % kOften && !rests) continue;
    const Clock::time_point now = Clock::now();
    if (!lost) {
      for (int64_t from : messages.awaited()) {
        awaited = from;
        if (gone(from, group.lane)) lost = now;
      }
      if (l.failed) {
        std::lock_guard lock(mutex_);
        if (l.failure.of_all || now - l.since > kGrace) lost = now;
      }
    } else if (now - *lost > kStraggles) {
      messages.give_up();
      released(group, place);
    }
    if (interrupted()) {
      messages.give_up();
      // mpirun signals all processes when one was killed. listen() learns which
      // one, so that the error names it.
      listen();
      check_failed(group, place);
      check_interrupted();
    }
    if (now - start > 2ms && !job_->rest(kRest))
      std::this_thread::sleep_for(50us);
    else if (now - start > 100us && !rests)
      sched_yield();
  }
}

std::chrono::nanoseconds Membership::waited_for(int64_t rank) {
  std::lock_guard lock(waiting_);
  int64_t total = ranks_[static_cast<size_t>(rank)].waited_for.total;
  if (is_here(rank)) total += thread(rank, 0).waited_for.total;
  return std::chrono::nanoseconds(total);
}

void Membership::released(const Group& group, size_t place) {
  const int64_t rank = group.rank_at(place);
  const FlightEntry me = thread(group, place).flight.newest();
  std::lock_guard lock(mutex_);
  if (lost_ < 0) check_interrupted();
  const Lane& l = lane(group.lane);
  if (l.failed) l.failure.raise(name(me.kind));
  for (int64_t r : group.ranks)
    if (gone(r, group.lane))
      throw PeerLeft(name(me.kind), r, rank,
                     call_to_string(me.kind, me.sequence, me.op));
  fail(name(me.kind),
       "the group of ranks {} has stopped, but no error says why, which is an "
       "error in dtensor; report it",
       ranks_to_string(group.ranks));
}

// ---- Watching ----

void Membership::watch(const std::stop_token& stop) {
  for (Clock::time_point looked = Clock::now(); !stop.stop_requested();) {
    try {
      if (job_) {
        listen();
        end_as_told();
      }
      if (const Clock::time_point now = Clock::now(); now - looked >= kLook) {
        looked = now;
        look();
      }
    } catch (const std::bad_alloc&) {  // the next round tries again
    }
    std::unique_lock lock(mutex_);
    stop_.wait_for(lock, stop, job_ ? kListen : kLook, [] { return false; });
  }
}

// Ends waits of this process's ranks that would not end by themselves. If a
// rank waits, and its last call is still that of the previous look, it has
// waited ever since. So ranks need not record when each wait begins.
void Membership::look() {
  for (int64_t rank = first_; rank < last_; ++rank)
    for (int l = 0; l < kLanes; ++l) {
      Thread& t = thread(rank, l);
      const uint64_t last = t.flight.newest().number;
      t.stays = last == std::exchange(t.last, last);
      const Thread::Waits waits = t.waits;
      if (!t.stays || waits == Thread::Waits::kNot) t.waited = TimeWaited();
      if (waits == Thread::Waits::kNot || lane(l).failed) continue;
      if (interrupted() && waits == Thread::Waits::kForThreads)
        fail_all(rank, interrupted_text());
      if (timeout() == 0ms || t.waited.look() < timeout()) continue;
      const std::string text = who_is_missing(rank, l);
      // The missing ranks may have come while who_is_missing() ran.
      if (t.waits == waits && t.flight.newest().number == last)
        fail_all(rank, text);
    }
  std::vector<RankFailure> overdue;
  {
    std::lock_guard lock(telling_);
    if (observer_.overdue) overdue = observer_.overdue();
  }
  for (const RankFailure& f : overdue)
    for (int l = 0; l < kLanes; ++l) failed(f.rank, l, f.why);
  seek_circles();
}

// ---- Failing ----

void Membership::fail_lane(int lane_number, RankFailure failure) noexcept {
  Lane& l = lane(lane_number);
  // Hold this until the end: a rank that fails at the same time must not
  // return, and free what the observer aborts, before the observer has run.
  std::lock_guard telling(telling_);
  {
    std::lock_guard lock(mutex_);
    if (l.failed) return;
    l.failure = std::move(failure);
    l.since = Clock::now();
    l.failed = true;
    for (auto& [ranks, group] : l.groups) group->barrier.break_up();
  }
  if (observer_.failed) observer_.failed(lane_number, l.failure);
}

void Membership::fail_all(int64_t rank, const std::string& text) noexcept {
  for (int lane = 0; lane < kLanes; ++lane) {
    fail_lane(lane, {rank, text, true});
    tell_all([&] { return pack("failed", rank, lane, rank, true, text); });
  }
}

void Membership::observe(Observer observer) {
  std::lock_guard lock(telling_);
  observer_ = std::move(observer);
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
    const FlightEntry last = thread(rank, lane_number).flight.newest();
    failure.why = fmt::format(
        "{} ({})", what,
        last.number == 0
            ? "it had called no collective"
            : "its last collective was " +
                  call_to_string(last.kind, last.sequence, last.op));
  } catch (...) {  // there may be no memory left; a short text needs none
    failure.why = "out of memory";
  }
  fail_lane(lane_number, std::move(failure));
  mark_gone(rank, lane_number);
  // Tell the other processes the lane's first failure, which no longer changes.
  // It may be that of another rank.
  const RankFailure& first = lane(lane_number).failure;
  tell_all([&] {
    return pack("failed", rank, lane_number, first.rank, first.of_all,
                first.why);
  });
}

void Membership::left(int64_t rank) noexcept {
  for (int lane = 0; lane < kLanes; ++lane) mark_gone(rank, lane);
  tell_all([&] { return pack("left", rank); });
}

}  // namespace dtensor
