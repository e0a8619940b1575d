// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/job.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "dtensor/comm/pack.h"
#include "dtensor/environment.h"
#include "dtensor/interrupt.h"
#include "dtensor/io/checksum.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 100us;
// How often a wait looks at its clocks, and how long it may go on after a
// signal that asks this process to end.
constexpr auto kLook = 5ms, kAfterSignal = 500ms;
// How many times within its patience (the longest wait) a process tells others
// that it is alive.
constexpr int kBeats = 4;
// After one process has failed, the others get this much time to report their
// failures, too: the verdict is that of the lowest process.
constexpr auto kAlso = 50ms;
// For gather(): the matter (topic) of its messages, the bytes of each part of a
// text but the last, and how often each process is asked for its clock.
constexpr int64_t kGathers = 0, kPartBytes = 1 << 20;
constexpr int kAsks = 16;
// The matter of texts that only say that their sender is alive.
constexpr int64_t kAlive = std::numeric_limits<int64_t>::min();
// The two requests of process 0 to another one in gather(): for the time, and
// for the next part of the text. Answers begin with kFailed if the process has
// failed, and with kPart if they carry a part of the text.
constexpr std::string_view kTime = "time", kMore = "more";
constexpr char kFailed = '!', kPart = ':';

// Thrown in gather() if another process has called not_gathering(), with its
// reason. Only process 0 passes such a reason on.
class ToldSo final : public Error {
  using Error::Error;
};

JobVerdict verdict_in(const std::string& text) {
  JobVerdict verdict;
  unpack(text, verdict.code, verdict.text);
  return verdict;
}

// The checksum of a text and its matter. It is sent in front of the text.
uint64_t sum_of(int64_t matter, std::string_view text) {
  return hash_mix(checksum(text.data(), std::ssize(text)),
                  static_cast<uint64_t>(matter));
}

std::vector<int> others_than(int process, int processes) {
  std::vector<int> all(static_cast<size_t>(processes));
  std::iota(all.begin(), all.end(), 0);
  std::erase(all, process);
  return all;
}

// The exit code of a program whose wait for another process has failed.
int code_of_wait() { return interrupted() ? 128 + interrupted() : 1; }

}  // namespace

// ---- Deadlines ----

Patience ProcessJob::patience() const {
  std::lock_guard lock(mutex_);
  return patience_;
}

void ProcessJob::set_patience(const Patience& p) {
  std::lock_guard lock(mutex_);
  patience_ = p;
}

void ProcessJob::beat() {
  {
    std::lock_guard lock(mutex_);
    const auto now = TimeWaited::Clock::now();
    if (patience_.time == 0ms || now - beat_ < patience_.time / kBeats) return;
    beat_ = now;
  }
  // Process 0 waits for all others, and the others wait only for process 0. (In
  // TcpJob::leave(), at the end of the program, all wait for all.)
  for (int p : others_than(process(), processes()))
    if (process() == 0 || p == 0) tell(kAlive, p, "");
}

ProcessJob::Wait::Wait(ProcessJob& job, std::string_view phase,
                       std::optional<std::chrono::milliseconds> most)
    : job_(job), phase_(phase), patience_(job.patience()) {
  if (most) patience_.time = *most;
}

void ProcessJob::Wait::look(const std::function<std::vector<int>()>& awaited) {
  const auto now = TimeWaited::Clock::now();
  if (now < next_) return;
  next_ = now + kLook;
  job_.beat();
  if (interrupted()) {
    if (!asked_) asked_.emplace(now);
    if (asked_->look(now) > kAfterSignal)
      give_up(interrupted_wait_text(processes_to_string(awaited()), phase_));
  }
  if (patience_.time == 0ms) return;
  const std::vector<int> who = awaited();
  std::vector<int> silent;
  {
    std::lock_guard lock(job_.mutex_);
    for (int p : who) {
      const uint64_t heard = job_.heard_[p];
      Clock& c = clocks_[p];
      if (c.heard != heard) c = {heard, TimeWaited(now)};
      if (c.waited.look(now) >= patience_.time) silent.push_back(p);
    }
  }
  if (!silent.empty())
    give_up(no_answer_text(processes_to_string(silent), phase_, patience_));
}

void ProcessJob::Wait::give_up(const std::string& text) {
  job_.failed_ = job_.gave_up_ = true;
  throw NoAnswer(text);
}

// ---- Control messages ----

void ProcessJob::tell(int64_t matter, int process, std::string_view text) {
  const uint64_t sum = sum_of(matter, text);
  std::string whole(sizeof(sum), 0);
  std::memcpy(whole.data(), &sum, sizeof(sum));
  send(matter, process, whole.append(text));
}

void ProcessJob::deliver(int64_t matter, Told told) {
  uint64_t sum = 0;
  const bool is_whole = told.text.size() >= sizeof(sum);
  if (is_whole) std::memcpy(&sum, told.text.data(), sizeof(sum));
  const std::string_view text =
      std::string_view(told.text).substr(is_whole ? sizeof(sum) : 0);
  DT_CHECK(is_whole && sum == sum_of(matter, text), "run",
           "a control message of {} bytes from process {} to process {} is "
           "damaged: its checksum is {}, and that of its bytes is {}; look for "
           "faulty memory or a faulty network between the two",
           text.size(), told.from, process(),
           is_whole ? checksum_text(sum) : "missing",
           checksum_text(sum_of(matter, text)));
  told.text.erase(0, sizeof(sum));
  std::lock_guard lock(mutex_);
  ++heard_[told.from];
  // Messages about a run that is over are dropped.
  if (matter == kAlive || (matter > 0 && matter < runs_)) return;
  told_[matter].push_back(std::move(told));
}

std::optional<ProcessJob::Told> ProcessJob::told(int64_t matter, int from) {
  try {
    listen();
  } catch (const Error& e) {
    std::lock_guard lock(mutex_);
    if (damage_.empty()) damage_ = e.what();
    throw;
  }
  std::lock_guard lock(mutex_);
  auto& all = told_[matter];
  const auto it = std::find_if(all.begin(), all.end(), [&](const auto& t) {
    return from < 0 || t.from == from;
  });
  if (it == all.end()) return {};
  Told next = std::move(*it);
  all.erase(it);
  return next;
}

// Throws the first Error of told() again, if there was one: told() throws an
// Error only once, and a run that is over may have caught it.
void ProcessJob::check_damage() const {
  std::lock_guard lock(mutex_);
  if (!damage_.empty()) throw Error(damage_);
}

int64_t ProcessJob::begin_run(int64_t ranks_per_process) {
  int64_t run = 0;
  {
    std::lock_guard lock(mutex_);
    run = ++runs_;
    // Drops messages about runs that are over: matters from 1 to run - 1.
    told_.erase(told_.upper_bound(0), told_.lower_bound(run));
  }
  open_run(run, ranks_per_process);
  return run;
}

bool ProcessJob::is_main_process() {
  std::lock_guard lock(mutex_);
  return agreements_ > 0 ? is_main_ : process() == 0;
}

JobVerdict ProcessJob::agree(const JobVerdict& here) {
  int64_t matter = 0;
  {
    std::lock_guard lock(mutex_);
    matter = -++agreements_;
    is_main_ = process() == 0;
  }
  if (here.code != 0) {
    failed_ = true;
    warn(here.text);
  }
  return settle(matter, here, "agree how they fare");
}

void ProcessJob::warn(const std::string& why) noexcept {
  int64_t run = 0;
  {
    std::lock_guard lock(mutex_);
    run = runs_;
  }
  for (int p = 0; p < processes(); ++p) try {
      for (int64_t r : {run, run + 1})
        if (p != process() && r > 0) tell(r, p, pack("process", why));
    } catch (...) {  // process p will notice that this one has ended
    }
}

JobVerdict ProcessJob::settle(int64_t matter, const JobVerdict& here,
                              std::string_view phase) {
  const Wait wait(*this, phase);
  const JobVerdict all = process() == 0 ? settle_as_first(matter, here, wait)
                                        : settle_as_other(matter, here, wait);
  if (all.code != 0) failed_ = true;
  return all;
}

void ProcessJob::compare(const JobFacts& here) {
  JobVerdict fared;
  gather("compare their flags", here.text(), [&](const Gathered& g) {
    if (fared.code == 0)
      fared.text = here.difference(g.process, JobFacts::from(g.text));
    if (!fared.text.empty()) fared.code = 2;
  });
  fared = agree(fared);
  if (gave_up_) throw NoAnswer(fared.text);
  if (fared.code != 0) throw Error(fared.text);
}

JobVerdict ProcessJob::settle_as_other(int64_t matter, const JobVerdict& here,
                                       Wait wait) {
  // After an Error, this process no longer hears from the others, so is_main
  // stays true, and this process prints the text.
  JobVerdict last = here;
  bool is_main = true;
  try {
    tell(matter, 0, pack(here.code, here.text));
    for (; !gave_up_; std::this_thread::sleep_for(kPause)) {
      if (ended_with() != 0) return ended(here);
      if (here.code == 0) check_damage();
      const bool nobody = lost(0);  // ask first: told() must miss no text
      if (const auto all = told(matter, 0)) return verdict_in(all->text);
      if (nobody) {
        if (here.code == 0) last = gone(0);
        for (int p = 0; p < process(); ++p) is_main = is_main && lost(p);
        break;
      }
      wait.look([] { return std::vector{0}; });
    }
  } catch (const Error& e) {
    gave_up_ = true;
    if (here.code == 0) last = {code_of_wait(), e.what()};
    // Process 0 may have left this agreement, so also tell it where it may wait
    // now: in a run or in gather().
    warn(last.text);
    not_gathering(last.text);
  }
  if (gave_up_ && last.code == 0)
    last = {code_of_wait(),
            "[run] this process no longer waits for the others, because an "
            "earlier wait failed; look for that error"};
  std::lock_guard lock(mutex_);
  is_main_ = is_main;
  return last;
}

// The verdict about a process that has ended. The process may have called
// not_gathering() with the reason.
JobVerdict ProcessJob::gone(int process) {
  const auto t = told(kGathers, process);
  if (t && t->text.starts_with(kFailed)) return {1, t->text.substr(1)};
  return {1,
          fmt::format("[run] process {} has ended before the others; look for "
                      "the error in its output, or for a signal that killed it",
                      process)};
}

// The verdict when another process ends the whole job: that process has printed
// the reason.
JobVerdict ProcessJob::ended(const JobVerdict& here) {
  std::lock_guard lock(mutex_);
  is_main_ = false;
  return {ended_with(), here.text};
}

JobVerdict ProcessJob::settle_as_first(int64_t matter, const JobVerdict& here,
                                       Wait wait) {
  std::map<int, JobVerdict> come = {{0, here}};
  std::optional<Clock::time_point> end;
  const auto comes = [&](int process, JobVerdict verdict) {
    if (verdict.code != 0 && !end) end = Clock::now() + kAlso;
    come.emplace(process, std::move(verdict));
  };
  const auto absent = [&] {
    std::vector<int> all = others_than(0, processes());
    std::erase_if(all, [&](int p) { return come.contains(p); });
    return all;
  };
  if (here.code != 0) end = Clock::now() + kAlso;
  while (std::ssize(come) < processes() && !(end && Clock::now() > *end)) {
    if (ended_with() != 0) return ended(here);
    std::vector<int> lost_now = absent();
    std::erase_if(lost_now, [&](int p) { return !lost(p); });
    try {
      bool quiet = true;
      if (here.code == 0) check_damage();
      while (const auto t = told(matter)) {
        comes(t->from, verdict_in(t->text));
        quiet = false;
      }
      for (int p : lost_now) comes(p, gone(p));
      if (quiet) wait.look(absent);
      if (quiet) std::this_thread::sleep_for(kPause);
    } catch (const Error& e) {
      // The Error becomes the verdict about every process that has not come.
      for (int p : absent()) comes(p, {code_of_wait(), e.what()});
    }
  }
  JobVerdict all;
  for (const auto& [process, v] : come)
    if (all.code == 0) all = v;
  for (int p = 1; p < processes(); ++p)
    tell(matter, p, pack(all.code, all.text));
  return all;
}

// ---- Gathering ----
//
// Process 0 asks the others one after the other: several times for the clock,
// then for the text in parts, of which only the last one is shorter than
// kPartBytes. A last request tells the process that process 0 has everything.

// Waits for the next message of that process about gathering, and returns it.
std::string ProcessJob::hear_from(int process, Wait wait) {
  const auto start = Clock::now();
  for (;;) {
    check_damage();
    const bool nobody = lost(process);  // ask first: told() must miss no text
    if (auto t = told(kGathers, process)) {
      if (t->text.starts_with(kFailed)) throw ToldSo(t->text.substr(1));
      return std::move(t->text);
    }
    DT_CHECK(!nobody && ended_with() == 0, "gather",
             "process {} does not answer, because it or another process has "
             "ended; look for the error in their output",
             process);
    // A request for the clock is answered soon, so at first there is no sleep.
    if (Clock::now() - start < 2ms) {
      std::this_thread::yield();
    } else {
      wait.look([process] { return std::vector{process}; });
      std::this_thread::sleep_for(kPause);
    }
  }
}

void ProcessJob::gather(std::string_view phase, std::string_view here,
                        const std::function<void(Gathered)>& take,
                        const std::function<int64_t()>& given) try {
  const std::function<int64_t()> now =
      given ? given : [] { return Clock::now().time_since_epoch() / 1ns; };
  if (process() > 0) return give(phase, here, now);
  for (int p = 1; p < processes(); ++p) {
    const auto answer = [&](std::string_view request) {
      tell(kGathers, p, request);
      return hear_from(p, Wait(*this, phase));
    };
    Gathered g{p, "", 0, std::numeric_limits<int64_t>::max()};
    for (int i = 0; i < kAsks; ++i) {
      beat();
      const int64_t asked = now();
      const auto theirs = number_in<int64_t>(
          answer(kTime), std::numeric_limits<int64_t>::min());
      const int64_t answered = now(), half = (answered - asked + 1) / 2;
      DT_CHECK(
          theirs, "gather",
          "process {} sent no time, which is an error in dtensor; report it",
          p);
      if (half < g.within) {
        g.within = half;
        g.behind = asked + half - *theirs;
      }
    }
    for (size_t bytes = kPartBytes; bytes == kPartBytes;) {
      beat();
      const std::string part = answer(kMore);
      DT_CHECK(
          part.starts_with(kPart), "gather",
          "process {} sent no text, which is an error in dtensor; report it",
          p);
      g.text += part.substr(1);
      bytes = part.size() - 1;
    }
    take(std::move(g));
    tell(kGathers, p, kMore);
  }
} catch (const std::exception& e) {
  failed_ = true;
  // Tell the processes that still wait for this one. Process 0 may already be
  // waiting in the next agreement, so tell it there, too.
  if (process() == 0 || !dynamic_cast<const ToldSo*>(&e))
    not_gathering(e.what());
  if (process() > 0) {
    std::unique_lock lock(mutex_);
    const int64_t next = -(agreements_ + 1);
    lock.unlock();
    tell(next, 0, pack(code_of_wait(), std::string(e.what())));
  }
  throw;
}

void ProcessJob::give(std::string_view phase, std::string_view here,
                      const std::function<int64_t()>& now) {
  for (size_t bytes = kPartBytes; bytes == kPartBytes;) {
    if (hear_from(0, Wait(*this, phase)) == kTime) {
      tell(kGathers, 0, std::to_string(now()));
      continue;
    }
    bytes = std::min<size_t>(here.size(), kPartBytes);
    tell(kGathers, 0, kPart + std::string(here.substr(0, bytes)));
    here.remove_prefix(bytes);
  }
  hear_from(0, Wait(*this, phase));
}

void ProcessJob::not_gathering(std::string_view why) noexcept {
  for (int p = 0; p < processes(); ++p) try {
      if ((process() == 0) != (p == 0))
        tell(kGathers, p, kFailed + std::string(why));
    } catch (...) {  // process p will notice that this one has ended
    }
}

}  // namespace dtensor
