// The messages with which the processes of a run end it together.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "dtensor/comm/membership.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// How often a process reads control messages while its ranks compute.
constexpr auto kListen = 5ms;
// When some rank has failed, a signal to end is obeyed after kGrace; a process
// waits about kEnd for the ranks of others to end.
constexpr auto kGrace = 500ms, kEnd = 1000ms;
// A signal may be seen at most this long before the death that caused it.
constexpr auto kSignals = 200ms;

std::string pack(std::string_view what,
                 const std::optional<Backend::Failure>& f) {
  return f ? fmt::format("{} {} {:d} {}", what, f->rank, f->own, f->text)
           : std::string(what);
}

}  // namespace

std::string pack_ranks(const std::vector<int64_t>& ranks) {
  return fmt::format("{} {}", ranks.size(), fmt::join(ranks, " "));
}
std::vector<int64_t> unpack_ranks(std::istream& in) {
  size_t count = 0;
  in >> count;
  std::vector<int64_t> ranks(count);
  for (int64_t& r : ranks) in >> r;
  return ranks;
}

void Membership::begin_to_listen() {
  number_ = job_->begin_run(ranks_per_process_);
  listener_ = std::thread([this] {
    for (std::unique_lock lock(mutex_); !stopping_;) {
      lock.unlock();
      listen();
      end_as_told();
      seek_circles();
      lock.lock();
      changed_.wait_for(lock, kListen, [&] { return stopping_; });
    }
  });
}

Membership::~Membership() {
  if (!job_) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  listener_.join();
  job_->end_run(decided_ && !verdict_);
}

void Membership::tell_all_of(fmt::string_view format,
                             fmt::format_args args) noexcept {
  for (int p = 0; p < processes(); ++p) try {
      if (p != process()) tell(p, fmt::vformat(format, args));
    } catch (...) {  // it is told nothing, and waits for its deadline
    }
}

void Membership::listen() {
  std::lock_guard one(listening_);
  while (const auto told = job_->told(number_)) hear(*told);
  if (const int p = job_->lost_in_run(); p >= 0) lose(p);
}

// A process that was killed does not report its failure itself.
void Membership::lose(int process) {
  const int64_t first = std::min(process * ranks_per_process_, world_);
  const int64_t last = std::min(first + ranks_per_process_, world_);
  const std::string why(job_->why_lost());
  {
    std::lock_guard lock(mutex_);
    if (ended_.contains(process) || lost_ == process) return;
    lost_ = process;
    const Lane& l = lanes_[0];
    lost_first_ = (!l.failed || (!l.failure.of_all &&
                                 process_of(l.failure.rank) == process)) &&
                  Clock::now() - kSignals < asked_;
    const int64_t who = std::min(first, world_ - 1);
    ended_[process] = {who, true,
                       fmt::format("[run] rank {} failed: {}", who, why)};
  }
  for (int64_t r = first; r < last; ++r)
    for (int lane = 0; lane < kLanes; ++lane) {
      fail_lane(lane, {r, why});
      mark_gone(r, lane);
    }
}

void Membership::hear(const ProcessJob::Told& told) {
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
    fail_lane(lane, {who, rest(), of_all != 0});
    mark_gone(rank, lane);
  } else if (what == "left") {
    int64_t rank = 0;
    in >> rank;
    for (int lane = 0; lane < kLanes; ++lane) mark_gone(rank, lane);
  } else if (what == "process") {
    // All of its ranks count as failed.
    const std::string why = rest();
    const int64_t who = std::min(told.from * ranks_per_process_, world_ - 1);
    for (int lane = 0; lane < kLanes; ++lane) fail_lane(lane, {who, why});
  } else if (what == "where") {
    uint64_t question = 0;
    Awaited awaited;
    in >> question >> awaited.lane >> awaited.sequence;
    awaited.group = unpack_ranks(in);
    for (int64_t r : awaited.group)
      if (is_here(r))
        tell(told.from, fmt::format("here {} {} {} {}", question, r,
                                    has_come(awaited, r) ? 1 : 0,
                                    what_keeps(r, awaited.lane)));
  } else if (what == "here") {
    std::pair<uint64_t, int64_t> about;
    int has_come = 0;
    in >> about.first >> about.second >> has_come;
    std::string keeps = rest();
    std::lock_guard lock(mutex_);
    answers_[about] = {has_come != 0, std::move(keeps)};
  } else if (what == "circle") {
    hear_search(rest());
  } else if (what == "ended" || what == "verdict") {
    std::optional<Failure> failure;
    int64_t rank = 0;
    int own = 0;
    if (in >> rank >> own) failure = {rank, own != 0, rest()};
    std::lock_guard lock(mutex_);
    if (what == "ended") {
      ended_[told.from] = std::move(failure);
    } else if (!decided_) {
      // Process 1 forwards the verdict of process 0, for processes that have
      // lost their connection to process 0.
      if (failure && process() == 1) tell_all("{}", told.text);
      verdict_ = std::move(failure);
      decided_ = true;
    }
  }
}

// In process 0, when all have ended: the verdict is the failure of the lowest
// rank that failed by itself, or else of the lowest rank that failed.
void Membership::decide() {
  std::optional<Failure> worst;
  {
    std::lock_guard lock(mutex_);
    if (decided_ || std::ssize(ended_) < processes()) return;
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
  tell_all("{}", pack("verdict", worst));
}

std::optional<Backend::Failure> Membership::conclude(
    const std::optional<Failure>& here) {
  if (!job_) return here;
  if (process() == 0) {
    std::lock_guard lock(mutex_);
    ended_[0] = here;
  } else {
    tell(0, pack("ended", here));
  }
  std::optional<Clock::time_point> failed;
  for (;;) {
    listen();
    if (process() == 0) decide();
    {
      std::lock_guard lock(mutex_);
      if (decided_) return verdict_;
      bool any = here.has_value();
      for (const Lane& l : lanes_) any |= l.failed;
      if (any && !failed) failed = Clock::now();
      // If process 0 has reported the failure, a signal tells the others to
      // end.
      const bool told = interrupted() && process() > 0;
      const bool late = failed && !told &&
                        Clock::now() - *failed > kEnd + process() * 2 * kEnd;
      // If process 0 was killed, nobody decides; process 1 reports instead.
      const bool next = lost_ == 0 && process() == 1 && failed &&
                        (lost_first_ || !(here && here->own));
      if (late || next)
        end_job(here && !(interrupted() && next) ? here->text : why());
    }
    std::this_thread::sleep_for(200us);
  }
}

// When a launcher has seen a process die, it asks the others to end, and ends
// them itself a second later, though their ranks may not have noticed yet.
void Membership::end_as_told() {
  std::lock_guard lock(mutex_);
  if (!interrupted()) return;
  asked_ = std::min(asked_, Clock::now());
  const bool decides = process() == (lost_ == 0 ? 1 : 0);
  if (lost_first_ && decides && !decided_ &&
      Clock::now() - lanes_[0].since > kGrace)
    end_job(why());
}

std::string Membership::why() const {
  const RankFailure& f = lanes_[lanes_[0].failed ? 0 : 1].failure;
  return f.of_all ? f.why
                  : fmt::format("[run] rank {} failed: {}", f.rank, f.why);
}

// Called with the mutex held, so that no other thread prints anything else.
void Membership::end_job(const std::string& why) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s (some ranks do not answer; the job ends)\n",
               program_invocation_short_name, why.c_str());
  job_->abort(1);
  std::_Exit(1);
}

}  // namespace dtensor
