// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/job.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "dtensor/comm/pack.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 100us;
// After one process has failed, the others get some time to report their own
// failure.
constexpr auto kAlso = 50ms;
// Gathering: its matter, the bytes of each part of a text but the last, and how
// often a process is asked for its clock.
constexpr int64_t kGathers = 0, kPartBytes = 1 << 20;
constexpr int kAsks = 16;
// The two requests of process 0 to another one. Answers begin with kFailed if
// the process has failed, and with kPart if they carry a part of the text.
constexpr std::string_view kTime = "time", kMore = "more";
constexpr char kFailed = '!', kPart = ':';

JobVerdict verdict_in(const std::string& text) {
  JobVerdict verdict;
  unpack(text, verdict.code, verdict.text);
  return verdict;
}

JobVerdict gone(int process) {
  return {1, fmt::format("[run] process {} has ended before the others (it was "
                         "killed, or crashed)",
                         process)};
}

}  // namespace

void ProcessJob::deliver(int64_t matter, Told told) {
  std::lock_guard lock(mutex_);
  // Messages about a run that is over are dropped.
  if (matter > 0 && matter < runs_) return;
  told_[matter].push_back(std::move(told));
}

std::optional<ProcessJob::Told> ProcessJob::told(int64_t matter, int from) {
  listen();
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

int64_t ProcessJob::begin_run(int64_t ranks_per_process) {
  int64_t run = 0;
  {
    std::lock_guard lock(mutex_);
    run = ++runs_;
    // Drops messages about runs that are over (agreements have negative
    // numbers).
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
  int64_t matter = 0, run = 0;
  {
    std::lock_guard lock(mutex_);
    matter = -++agreements_;
    is_main_ = process() == 0;
    run = runs_;
  }
  if (here.code != 0) failed_ = true;
  // Processes that are in a run, or begin one, need not wait for this one's
  // ranks.
  if (here.code != 0)
    for (int p = 0; p < processes(); ++p)
      for (int64_t r : {run, run + 1})
        if (p != process() && r > 0) tell(r, p, pack("process", here.text));
  const JobVerdict all = process() == 0 ? agree_as_first(matter, here)
                                        : agree_as_other(matter, here);
  if (all.code != 0) failed_ = true;
  return all;
}

void ProcessJob::compare(const JobFacts& here) {
  JobVerdict fared;
  gather(here.text(), [&](const Gathered& g) {
    if (fared.code == 0)
      fared.text = here.difference(g.process, JobFacts::from(g.text));
    if (!fared.text.empty()) fared.code = 2;
  });
  fared = agree(fared);
  if (fared.code != 0) throw Error(fared.text);
}

JobVerdict ProcessJob::agree_as_other(int64_t matter, const JobVerdict& here) {
  tell(matter, 0, pack(here.code, here.text));
  for (;; std::this_thread::sleep_for(kPause)) {
    if (ended_with() != 0) return ended(here);
    const bool nobody = lost(0);  // before told(): no message is lost
    if (const auto all = told(matter)) return verdict_in(all->text);
    if (!nobody) continue;
    bool first = true;
    for (int p = 0; p < process(); ++p) first = first && lost(p);
    std::lock_guard lock(mutex_);
    is_main_ = first;
    return here.code != 0 ? here : gone(0);
  }
}

// Another process has printed the reason and ends all of them.
JobVerdict ProcessJob::ended(const JobVerdict& here) {
  std::lock_guard lock(mutex_);
  is_main_ = false;
  return {ended_with(), here.text};
}

JobVerdict ProcessJob::agree_as_first(int64_t matter, const JobVerdict& here) {
  std::map<int, JobVerdict> come = {{0, here}};
  std::optional<Clock::time_point> end;
  const auto comes = [&](int process, JobVerdict verdict) {
    if (verdict.code != 0 && !end) end = Clock::now() + kAlso;
    come[process] = std::move(verdict);
  };
  comes(0, here);
  while (std::ssize(come) < processes() && !(end && Clock::now() > *end)) {
    if (ended_with() != 0) return ended(here);
    std::map<int, bool> lost_now;
    for (int p = 1; p < processes(); ++p) lost_now[p] = lost(p);
    bool quiet = true;
    while (const auto t = told(matter)) {
      comes(t->from, verdict_in(t->text));
      quiet = false;
    }
    for (const auto& [p, is_lost] : lost_now)
      if (is_lost && !come.contains(p)) comes(p, gone(p));
    if (quiet) std::this_thread::sleep_for(kPause);
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
// then for the text in parts, of which only the last one is short. A last
// request tells the process that process 0 has everything.

// The next message of that process.
std::string ProcessJob::hear_from(int process) {
  const auto start = Clock::now();
  for (;;) {
    const bool nobody = lost(process);  // before told(): none is lost
    if (auto t = told(kGathers, process)) {
      if (t->text.starts_with(kFailed)) throw Error(t->text.substr(1));
      return std::move(t->text);
    }
    DT_CHECK(!nobody && ended_with() == 0, "gather",
             "process {} ended before it sent its data; look for the error in "
             "its output",
             process);
    // A request for the clock is answered soon.
    if (Clock::now() - start < 2ms)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kPause);
  }
}

void ProcessJob::gather(std::string_view here,
                        const std::function<void(Gathered)>& take,
                        const std::function<int64_t()>& given) {
  const std::function<int64_t()> now =
      given ? given : [] { return Clock::now().time_since_epoch() / 1ns; };
  if (process() > 0) return give(here, now);
  try {
    for (int p = 1; p < processes(); ++p) {
      Gathered g{p, "", 0, std::numeric_limits<int64_t>::max()};
      for (int i = 0; i < kAsks; ++i) {
        const int64_t asked = now();
        tell(kGathers, p, kTime);
        const int64_t theirs = std::stoll(hear_from(p)), answered = now(),
                      half = (answered - asked + 1) / 2;
        if (half < g.within) {
          g.within = half;
          g.behind = asked + half - theirs;
        }
      }
      for (size_t bytes = kPartBytes; bytes == kPartBytes;) {
        tell(kGathers, p, kMore);
        const std::string part = hear_from(p).substr(1);
        g.text += part;
        bytes = part.size();
      }
      take(std::move(g));
      tell(kGathers, p, kMore);
    }
  } catch (const std::exception& e) {
    not_gathering(e.what());  // for the processes that still wait to be asked
    throw;
  }
}

void ProcessJob::give(std::string_view here,
                      const std::function<int64_t()>& now) {
  for (size_t bytes = kPartBytes; bytes == kPartBytes;) {
    if (hear_from(0) == kTime) {
      tell(kGathers, 0, std::to_string(now()));
      continue;
    }
    bytes = std::min<size_t>(here.size(), kPartBytes);
    tell(kGathers, 0, kPart + std::string(here.substr(0, bytes)));
    here.remove_prefix(bytes);
  }
  hear_from(0);
}

void ProcessJob::not_gathering(std::string_view why) noexcept {
  for (int p = 0; p < processes(); ++p) try {
      if ((process() == 0) != (p == 0))
        tell(kGathers, p, kFailed + std::string(why));
    } catch (...) {  // it will notice that this process has ended
    }
}

}  // namespace dtensor
