#include "dtensor/comm/process_run.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "dtensor/comm/threads.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// How often a process reads control messages while its ranks compute.
constexpr auto kListen = 5ms;
// How long a waiting thread sleeps between checks if nothing arrives.
constexpr auto kRest = 500us;
// A message may arrive after the news that its sender is gone.
constexpr auto kStraggles = 20ms;
// When some rank has failed, a rank that waits for others goes on for kGrace; a
// process waits about kEnd for the ranks of others to end.
constexpr auto kGrace = 500ms, kEnd = 1000ms;
// A signal may be seen at most this long before the death that caused it.
constexpr auto kSignals = 200ms;
// How long other processes may take to say where their ranks are.
constexpr auto kAnswer = 300ms;

}  // namespace

ProcessRun::ProcessRun(int64_t world, int64_t ranks_per_process,
                       std::unique_ptr<Transport> transport)
    : world_(world),
      ranks_per_process_(ranks_per_process),
      transport_(std::move(transport)),
      threads_(thread_backend(world)),
      first_(std::min(transport_->process() * ranks_per_process, world)),
      last_(std::min(first_ + ranks_per_process, world)),
      spin_(world <= static_cast<int64_t>(std::thread::hardware_concurrency())),
      places_(static_cast<size_t>((last_ - first_) * Backend::kLanes)),
      gone_(static_cast<size_t>(world)),
      waited_for_(static_cast<size_t>(world)) {
  DT_CHECK(world <= transport_->processes() * ranks_per_process, "run",
           "{} ranks do not fit into {} processes of {} each; start more "
           "processes, or write --ranks-per-process {}",
           world, transport_->processes(), ranks_per_process,
           (world + transport_->processes() - 1) / transport_->processes());
  listener_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    for (Clock::time_point sought; !stopping_;) {
      lock.unlock();
      listen();
      end_as_told();
      if (Clock::now() - sought > Barrier::kLate) {
        seek_circles();
        sought = Clock::now();
      }
      lock.lock();
      changed_.wait_for(lock, kListen, [&] { return stopping_; });
    }
  });
}

ProcessRun::~ProcessRun() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  listener_.join();
  if (decided_ && !verdict_) transport_->close();
}

LocalGroup& ProcessRun::local(const std::vector<int64_t>& ranks, int lane) {
  std::lock_guard lock(mutex_);
  auto& made = lanes_[static_cast<size_t>(lane)].groups[ranks];
  if (!made) {
    std::vector<int> members;
    for (size_t m = 0; m < ranks.size(); ++m) {
      DT_CHECK(ranks[m] >= 0 && ranks[m] < world_, "communicator",
               "rank {} is not in a run of {} ranks", ranks[m], world_);
      if (first_ <= ranks[m] && ranks[m] < last_)
        members.push_back(static_cast<int>(m));
    }
    made = std::make_unique<LocalGroup>(
        threads_->membership().group(ranks, lane), std::move(members), spin_);
    bool broken = lanes_[static_cast<size_t>(lane)].failed;
    for (int64_t r : ranks)
      broken |= gone_[static_cast<size_t>(r)].lanes[static_cast<size_t>(lane)];
    if (broken) made->barrier.break_up();
  }
  return *made;
}

void ProcessRun::enter(int member, int lane, const LocalGroup& group,
                       const Collective& c) {
  const auto m = static_cast<size_t>(member);
  threads_->membership().note(group.whole, m, *c.call, c.sequence);
  if (lanes_[static_cast<size_t>(lane)].failed)
    released(group.whole.ranks[m], lane);
}

ProcessRun::Where ProcessRun::where(int64_t rank, int lane) {
  const LastCall::Value last = threads_->membership().last_call(rank, lane);
  return {last.group ? last.group->ranks : std::vector<int64_t>(), last.kind,
          last.sequence, last.op, place(rank, lane).waits};
}

std::string ProcessRun::to_string(const Where& w) {
  if (w.group.empty()) return "";
  return fmt::format(
      "{} {} of ranks {}", w.waits ? "it waits in" : "its last collective was",
      call_to_string(w.kind, w.sequence, w.op), ranks_to_string(w.group));
}

void ProcessRun::wait(PendingMessages& messages, int64_t rank, int lane) {
  constexpr int kQuick = 200, kLook = 64;
  if (messages.done()) return;
  const bool rests = !spin_ && transport_->rest(0us);
  for (int i = 0; i < kQuick && !rests; ++i)
    if (messages.done()) return;
  Place& p = place(rank, lane);
  struct Waits {
    std::atomic<bool>& flag;
    explicit Waits(std::atomic<bool>& f) : flag(f) { flag = true; }
    ~Waits() { flag = false; }
  } const waits(p.waits);
  const auto at = static_cast<size_t>(lane);
  const Clock::time_point start = Clock::now();
  TimeWaited waited(start);
  std::optional<Clock::time_point> lost;
  int64_t awaited = -1;
  for (int64_t i = 0;; ++i) {
    if (messages.done()) {
      const Clock::time_point end = Clock::now();
      if (awaited >= 0 && end - start > 2ms && lane == 0) {
        std::lock_guard lock(waiting_);
        waited_for_[static_cast<size_t>(awaited)].add(
            start.time_since_epoch() / 1ns, end.time_since_epoch() / 1ns);
      }
      return;
    }
    if (rests)
      transport_->rest(kRest);
    else if (!spin_)
      sched_yield();
    if (i % kLook && !rests) continue;
    const Clock::time_point now = Clock::now();
    const Clock::duration so_far = waited.look(now);
    if (!lost) {
      for (const PendingMessages::Receipt& r : messages.receipts()) {
        if (r.bytes >= 0) continue;
        awaited = r.from;
        if (gone_[static_cast<size_t>(r.from)].lanes[at]) lost = now;
      }
      if (lanes_[at].failed) {
        std::lock_guard lock(mutex_);
        if (now - lanes_[at].since > kGrace) lost = now;
      }
    } else if (now - *lost > kStraggles) {
      messages.give_up();
      released(rank, lane);
    }
    if (interrupted()) {
      messages.give_up();
      listen();  // mpirun ends all when one is killed: which one?
      if (lanes_[at].failed) released(rank, lane);
      check_interrupted();
    }
    if (timeout_.count() > 0 && so_far >= timeout_) {
      const std::string text = who_is_missing(rank, lane);
      if (messages.done()) return;
      messages.give_up();
      fail_all(rank, text);
      throw Error(text);
    }
    if (now - start > 2ms && !transport_->rest(kRest))
      std::this_thread::sleep_for(50us);
    else if (now - start > 100us && !rests)
      sched_yield();
  }
}

bool ProcessRun::meet(LocalGroup& group, int64_t rank, int lane) {
  TimeWaited waited;
  return group.barrier.wait(threads_->membership().waited(rank, lane), [&] {
    const Clock::duration so_far = waited.look();
    try {
      if (interrupted())
        fail_all(rank, interrupted_text());
      else if (timeout_.count() > 0 && so_far >= timeout_)
        fail_all(rank, who_is_missing(rank, lane));
    } catch (...) {
      // There is no memory for the text: the next check tries again.
    }
  });
}

void ProcessRun::fail_all(int64_t rank, const std::string& text) noexcept {
  for (int lane = 0; lane < Backend::kLanes; ++lane) {
    fail_lane(rank, lane, text, true);
    tell_all(fmt::format("failed {} {} {} 1 {}", rank, lane, rank, text));
  }
}

// Describes the collective in which `rank` waits, with answers from the other
// processes.
std::string ProcessRun::who_is_missing(int64_t rank, int lane) {
  const Where me = where(rank, lane);
  {
    std::lock_guard lock(mutex_);
    whereabouts_.clear();
  }
  tell_all(fmt::format("where {}", lane));
  const Clock::time_point end = Clock::now() + kAnswer;
  std::vector<int64_t> arrived;
  std::vector<Missing> missing;
  for (bool last = false; !last;) {
    listen();
    last = Clock::now() > end;
    arrived.clear();
    missing.clear();
    bool silent = false;
    std::unique_lock lock(mutex_);
    for (int64_t r : me.group) {
      if (first_ <= r && r < last_) {
        const Where it = where(r, lane);
        if (it.group == me.group && it.sequence == me.sequence)
          arrived.push_back(r);
        else
          missing.push_back({r, to_string(it)});
        continue;
      }
      const auto told = whereabouts_.find(r);
      silent = silent || told == whereabouts_.end();
      if (told == whereabouts_.end())
        missing.push_back({r, "its process does not answer"});
      else if (told->second.group == me.group &&
               told->second.sequence == me.sequence)
        arrived.push_back(r);
      else
        missing.push_back({r, to_string(told->second)});
    }
    lock.unlock();
    if (!silent) break;
    std::this_thread::sleep_for(1ms);
  }
  std::string call = call_to_string(me.kind, me.sequence, me.op);
  if (lane > 0) call += " (redistribute_async)";
  return fmt::format("[{}] {}", name(me.kind),
                     not_all_came(call, me.group, arrived, missing, timeout_));
}

void ProcessRun::released(int64_t rank, int lane) {
  const Where me = where(rank, lane);
  std::lock_guard lock(mutex_);
  if (lost_ < 0) check_interrupted();
  const Lane& l = lanes_[static_cast<size_t>(lane)];
  if (l.failed && l.of_all) throw Error(l.why);
  if (l.failed) throw PeerFailed(name(me.kind), l.who, l.why);
  for (int64_t r : me.group)
    if (gone_[static_cast<size_t>(r)].lanes[static_cast<size_t>(lane)])
      throw PeerLeft(name(me.kind), r, rank,
                     call_to_string(me.kind, me.sequence, me.op));
  fail(name(me.kind), "the group of ranks {} is broken",
       ranks_to_string(me.group));
}

void ProcessRun::fail_lane(int64_t who, int lane, std::string why,
                           bool of_all) noexcept {
  Lane& l = lanes_[static_cast<size_t>(lane)];
  {
    std::lock_guard lock(mutex_);
    if (l.failed) return;
    l.who = who;
    l.why = std::move(why);
    l.of_all = of_all;
    l.since = Clock::now();
    l.failed = true;
    for (auto& [ranks, group] : l.groups) group->barrier.break_up();
    threads_->membership().stop(lane, {who, l.why, of_all});
  }
  // The text of a failed lane never changes, so no lock is needed.
  std::lock_guard lock(telling_);
  if (told_) told_({who, lane, l.why, of_all});
}

void ProcessRun::when_others_fail(
    std::function<void(const HostBackend::RemoteFailure&)> told) {
  std::lock_guard lock(telling_);
  told_ = std::move(told);
}

void ProcessRun::mark_gone(int64_t rank, int lane) noexcept {
  gone_[static_cast<size_t>(rank)].lanes[static_cast<size_t>(lane)] = true;
  std::lock_guard lock(mutex_);
  for (auto& [ranks, group] : lanes_[static_cast<size_t>(lane)].groups)
    if (std::count(ranks.begin(), ranks.end(), rank)) group->barrier.break_up();
}

void ProcessRun::failed(int64_t rank, int lane,
                        std::string_view what) noexcept {
  try {
    const Where w = where(rank, lane);
    fail_lane(rank, lane,
              w.group.empty()
                  ? fmt::format("{} (it had called no collective)", what)
                  : fmt::format("{} (its last collective was {})", what,
                                call_to_string(w.kind, w.sequence, w.op)),
              false);
  } catch (...) {  // there may be no memory left; a short text needs none
    fail_lane(rank, lane, "no memory", false);
  }
  mark_gone(rank, lane);
  // The other processes are told the first failure.
  std::string text;
  try {
    std::lock_guard lock(mutex_);
    const Lane& l = lanes_[static_cast<size_t>(lane)];
    text = fmt::format("failed {} {} {} {} {}", rank, lane, l.who,
                       l.of_all ? 1 : 0, l.why);
  } catch (...) {
    return;  // they notice that messages do not arrive
  }
  tell_all(text);
}

std::chrono::nanoseconds ProcessRun::waited_for(int64_t rank) {
  std::lock_guard lock(waiting_);
  return threads_->waited_for(rank) +
         std::chrono::nanoseconds(waited_for_[static_cast<size_t>(rank)].total);
}

void ProcessRun::left(int64_t rank) noexcept {
  for (int lane = 0; lane < Backend::kLanes; ++lane) mark_gone(rank, lane);
  threads_->left(rank);
  try {
    tell_all(fmt::format("left {}", rank));
  } catch (...) {  // they notice that messages do not arrive
  }
}

void ProcessRun::tell_all(const std::string& text) noexcept {
  for (int p = 0; p < transport_->processes(); ++p) try {
      if (p != transport_->process()) transport_->tell(p, text);
    } catch (...) {  // it is told nothing, and waits for its deadline
    }
}

void ProcessRun::listen() {
  // One thread at a time, so that messages keep their order.
  std::lock_guard one(listening_);
  while (std::optional<Transport::Told> told = transport_->told()) hear(*told);
  if (const int p = transport_->lost(); p >= 0) lose(p);
}

// A process that was killed does not report its failure itself.
void ProcessRun::lose(int process) {
  const int64_t first = std::min(process * ranks_per_process_, world_);
  const int64_t last = std::min(first + ranks_per_process_, world_);
  {
    std::lock_guard lock(mutex_);
    if (ended_.contains(process) || lost_ == process) return;
    lost_ = process;
    const Lane& l = lanes_[0];
    lost_first_ = (!l.failed || (!l.of_all && process_of(l.who) == process)) &&
                  Clock::now() - kSignals < asked_;
    const int64_t who = std::min(first, world_ - 1);
    ended_[process] = {
        who, true,
        fmt::format("[run] rank {} failed: {}", who, transport_->why_lost())};
  }
  for (int64_t r = first; r < last; ++r)
    for (int lane = 0; lane < Backend::kLanes; ++lane) {
      fail_lane(r, lane, std::string(transport_->why_lost()), false);
      mark_gone(r, lane);
    }
}

void ProcessRun::hear(const Transport::Told& told) {
  std::istringstream in(told.text);
  std::string what;
  in >> what;
  const auto rest = [&] {
    in.get();  // the space
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  if (what == "failed") {
    int64_t rank = 0, who = 0;
    int lane = 0, of_all = 0;
    in >> rank >> lane >> who >> of_all;
    const std::string why = rest();
    fail_lane(who, lane, why, of_all != 0);
    mark_gone(rank, lane);
  } else if (what == "left") {
    int64_t rank = 0;
    in >> rank;
    for (int lane = 0; lane < Backend::kLanes; ++lane) mark_gone(rank, lane);
    threads_->left(rank);
  } else if (what == "process") {
    // All of its ranks count as failed.
    const std::string why = rest();
    const int64_t who = std::min(told.from * ranks_per_process_, world_ - 1);
    for (int lane = 0; lane < Backend::kLanes; ++lane)
      fail_lane(who, lane, why, false);
  } else if (what == "where") {
    int lane = 0;
    in >> lane;
    for (int64_t r = first_; r < last_; ++r) {
      const Where w = where(r, lane);
      std::string text = fmt::format("here {} {} {} {} {}", r, w.group.size(),
                                     fmt::join(w.group, " "), w.sequence,
                                     static_cast<int>(w.kind));
      transport_->tell(told.from,
                       fmt::format("{} {} {}", text, w.waits ? 1 : 0, w.op));
    }
  } else if (what == "here") {
    int64_t rank = 0;
    size_t members = 0;
    int kind = 0, waits = 0;
    Where w;
    in >> rank >> members;
    w.group.resize(members);
    for (int64_t& r : w.group) in >> r;
    in >> w.sequence >> kind >> waits;
    w.kind = static_cast<StepKind>(kind);
    w.waits = waits != 0;
    w.op = rest();
    std::lock_guard lock(mutex_);
    whereabouts_[rank] = std::move(w);
  } else if (what == "circle") {
    hear_search(rest());
  } else if (what == "ended" || what == "verdict") {
    std::optional<Backend::Failure> failure;
    int64_t rank = 0;
    int own = 0;
    if (in >> rank >> own) failure = {rank, own != 0, rest()};
    std::lock_guard lock(mutex_);
    if (what == "ended") {
      ended_[told.from] = std::move(failure);
    } else if (!decided_) {
      // Process 1 forwards the verdict of process 0, for processes that have
      // lost their connection to process 0.
      if (failure && transport_->process() == 1) tell_all(told.text);
      verdict_ = std::move(failure);
      decided_ = true;
    }
  }
}

// In process 0, when all have ended: the verdict is the failure of the lowest
// rank that failed by itself, or else of the lowest rank that failed.
void ProcessRun::decide() {
  std::optional<Backend::Failure> worst;
  {
    std::lock_guard lock(mutex_);
    if (decided_ || std::ssize(ended_) < transport_->processes()) return;
    for (const auto& [process, f] : ended_)
      if (f && (!worst || std::pair(!f->own, f->rank) <
                              std::pair(!worst->own, worst->rank)))
        worst = f;
    // A launcher that sees one process killed ends the others by a signal, so
    // their failures are consequences.
    if (lost_ >= 0) worst = ended_[lost_];
    verdict_ = worst;
    decided_ = true;
  }
  tell_all(worst ? fmt::format("verdict {} {} {}", worst->rank,
                               worst->own ? 1 : 0, worst->text)
                 : "verdict");
}

std::optional<Backend::Failure> ProcessRun::conclude(
    const std::optional<Backend::Failure>& here) {
  if (transport_->process() == 0) {
    std::lock_guard lock(mutex_);
    ended_[0] = here;
  } else {
    transport_->tell(0, here ? fmt::format("ended {} {} {}", here->rank,
                                           here->own ? 1 : 0, here->text)
                             : "ended");
  }
  std::optional<Clock::time_point> failed;
  for (;;) {
    listen();
    if (transport_->process() == 0) decide();
    {
      std::lock_guard lock(mutex_);
      if (decided_) return verdict_;
      bool any = here.has_value();
      for (const Lane& l : lanes_) any |= l.failed;
      if (any && !failed) failed = Clock::now();
      // If process 0 has reported the failure, a signal tells the others to
      // end.
      const bool told = interrupted() && transport_->process() > 0;
      const bool late =
          failed && !told &&
          Clock::now() - *failed > kEnd + transport_->process() * 2 * kEnd;
      // If process 0 was killed, nobody decides; process 1 reports instead.
      const bool next = lost_ == 0 && transport_->process() == 1 && failed &&
                        (lost_first_ || !(here && here->own));
      if (late || next)
        end_job(here && !(interrupted() && next) ? here->text : why());
    }
    std::this_thread::sleep_for(200us);
  }
}

// When a launcher has seen a process die, it asks the others to end, and ends
// them itself a second later, though their ranks may not have noticed yet.
void ProcessRun::end_as_told() {
  std::lock_guard lock(mutex_);
  if (!interrupted()) return;
  asked_ = std::min(asked_, Clock::now());
  const bool decides = transport_->process() == (lost_ == 0 ? 1 : 0);
  if (lost_first_ && decides && !decided_ &&
      Clock::now() - lanes_[0].since > kGrace)
    end_job(why());
}

std::string ProcessRun::why() const {
  const Lane& l = lanes_[lanes_[0].failed ? 0 : 1];
  return l.of_all ? l.why
                  : fmt::format("[run] rank {} failed: {}", l.who, l.why);
}

// Called with the mutex held, so that no other thread prints anything else.
void ProcessRun::end_job(const std::string& why) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s (some ranks do not answer; the job ends)\n",
               program_invocation_short_name, why.c_str());
  transport_->abort(1);
  std::_Exit(1);
}

}  // namespace dtensor
