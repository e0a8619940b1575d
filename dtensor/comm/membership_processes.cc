// SPDX-License-Identifier: Apache-2.0
// The messages with which the processes of a run end it together.
#include <algorithm>
#include <utility>

#include "dtensor/comm/membership.h"
#include "dtensor/comm/pack.h"
#include "dtensor/interrupt.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;

// After a rank has failed: for how long the process that decides still ignores
// a signal to end, and for about how long process 0 waits for the ranks of the
// other processes to end. (Other processes wait longer.)
constexpr auto kGrace = 500ms, kEnd = 1000ms;
// A launcher that sees a process die signals the others. These may see the
// signal at most this long before they notice the death.
constexpr auto kSignals = 200ms;

// Returns the text of a message. `what` is "ended", for the ranks of one
// process, or "verdict", for the run. Rank -1 means that none failed.
std::string outcome(std::string_view what,
                    const std::optional<Backend::Failure>& failure) {
  const auto f = failure.value_or(Backend::Failure{-1, false, ""});
  return pack(what, f.rank, f.own, f.text);
}

}  // namespace

void Membership::listen() {
  std::lock_guard one(listening_);
  try {
    while (const auto told = job_->told(number_)) hear(*told);
    job_->beat();
    if (const int p = job_->lost_in_run(); p >= 0) lose(p);
  } catch (const Error& e) {  // a damaged message, or an error of the job
    if (lane(0).failed) return;
    fail_all(first_, e.what());
    // The message may have been the verdict. The others are then in the next
    // run, where fail_all() does not reach them.
    job_->warn(e.what());
  }
}

// Records the failure of a process that has ended without reporting it, such as
// one that was killed.
void Membership::lose(int process) {
  const int64_t first = std::min(process * ranks_per_process_, world_);
  const int64_t last = std::min(first + ranks_per_process_, world_);
  const std::string why = job_->why_lost(process);
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
  std::string what, why;
  int64_t rank = 0;
  const auto read = [&](auto&... values) {
    unpack(told.text, what, values...);
  };
  read();
  if (what == "failed") {
    int lane = 0;
    RankFailure failure;
    read(rank, lane, failure.rank, failure.of_all, failure.why);
    fail_lane(lane, std::move(failure));
    mark_gone(rank, lane);
  } else if (what == "left") {
    read(rank);
    for (int lane = 0; lane < kLanes; ++lane) mark_gone(rank, lane);
  } else if (what == "process") {
    // The process has failed outside the run (ProcessJob::warn()), which counts
    // as a failure of its first rank in both lanes.
    read(why);
    const int64_t who = std::min(told.from * ranks_per_process_, world_ - 1);
    for (int lane = 0; lane < kLanes; ++lane) fail_lane(lane, {who, why});
  } else if (what == "where") {
    uint64_t question = 0;
    Awaited awaited;
    read(question, awaited.lane, awaited.sequence, awaited.group);
    for (int64_t r : awaited.group)
      if (is_here(r))
        tell(told.from, pack("here", question, r, has_come(awaited, r),
                             what_keeps(r, awaited.lane)));
  } else if (what == "here") {
    uint64_t question = 0;
    Answer answer;
    read(question, rank, answer.has_come, answer.keeps);
    std::lock_guard lock(mutex_);
    answers_[{question, rank}] = std::move(answer);
  } else if (what == "circle") {
    hear_search(told.text);
  } else if (what == "ended" || what == "verdict") {
    bool own = false;
    read(rank, own, why);
    std::optional<Failure> failure;
    if (rank >= 0) failure = {rank, own, why};
    std::lock_guard lock(mutex_);
    if (what == "ended") {
      ended_[told.from] = std::move(failure);
    } else if (!decided_) {
      // If the run has failed, process 1 forwards the verdict of process 0, for
      // processes that have lost their connection to process 0.
      if (failure && process() == 1) tell_all([&] { return told.text; });
      verdict_ = std::move(failure);
      decided_ = true;
    }
  }
}

// Decides the verdict in process 0, once the ranks of all processes have ended:
// it is the failure of a lost process, or else of the lowest rank that failed
// by itself, or else of the lowest rank that failed.
void Membership::decide() {
  std::optional<Failure> worst;
  {
    std::lock_guard lock(mutex_);
    if (decided_ || std::ssize(ended_) < processes()) return;
    for (const auto& [process, f] : ended_)
      if (f && (!worst || std::pair(!f->own, f->rank) <
                              std::pair(!worst->own, worst->rank)))
        worst = f;
    // If a process was lost, its failure is the verdict: a launcher that sees
    // one process killed ends the others by a signal, so their failures are
    // consequences.
    if (lost_ >= 0) worst = ended_[lost_];
    verdict_ = worst;
    decided_ = true;
  }
  tell_all([&] { return outcome("verdict", worst); });
}

std::optional<Backend::Failure> Membership::conclude(
    const std::optional<Failure>& here) {
  if (!job_) return here;
  if (process() == 0) {
    std::lock_guard lock(mutex_);
    ended_[0] = here;
  } else {
    tell(0, outcome("ended", here));
  }
  std::optional<Clock::time_point> failed;
  ProcessJob::Wait wait(*job_, "end the run");
  for (;;) {
    listen();
    if (process() == 0) decide();
    {
      std::lock_guard lock(mutex_);
      if (decided_) return verdict_;
      bool any = here.has_value();
      for (const Lane& l : lanes_) any |= l.failed;
      if (any && !failed) failed = Clock::now();
      // Process 0 reports the failure first, and a launcher may then signal the
      // other processes. These wait longer, so as not to report it again.
      const bool told = interrupted() && process() > 0;
      const bool late = failed && Clock::now() - *failed >
                                      kEnd + (process() + told) * 2 * kEnd;
      // If process 0 was killed, nobody decides; process 1 reports instead.
      const bool next = lost_ == 0 && process() == 1 && failed &&
                        (lost_first_ || !(here && here->own));
      if (late || next)
        end_job(here && !(interrupted() && next) ? here->text : why());
    }
    // As long as nothing has failed, the other processes must say now and then
    // that they are alive (ProcessJob::beat()).
    if (!failed) try {
        wait.look([this] { return undecided(); });
      } catch (const NoAnswer& e) {
        end_job(e.what(), interrupted() ? 128 + interrupted() : 1);
      }
    std::this_thread::sleep_for(200us);
  }
}

// The processes for which conclude() waits.
std::vector<int> Membership::undecided() {
  if (process() > 0) return {0};
  std::vector<int> all;
  std::lock_guard lock(mutex_);
  for (int p = 1; p < processes(); ++p)
    if (!ended_.contains(p)) all.push_back(p);
  return all;
}

// Reports a lost process soon after a signal. A launcher that has seen a
// process die asks the others to end, and ends them itself a second later,
// although their ranks may not have noticed yet.
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

void Membership::end_job(const std::string& why, int code) noexcept {
  end_process(code, why + " (some ranks do not answer; the job ends)",
              [&] { job_->abort(code); });
}

}  // namespace dtensor
