// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/rounds.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "dtensor/comm/backend.h"

namespace dtensor {
namespace {

// A count that rises when others use the machine: the time on all cores that
// other virtual machines steal (0 if nobody counts it) and, if each of `ranks`
// has a core of its own, how often another process took a core from this one.
long disturbances(int ranks) {
  long sum = 0;
  if (std::FILE* file = std::fopen("/proc/stat", "r")) {
    if (std::fscanf(file, "cpu %*d %*d %*d %*d %*d %*d %*d %ld", &sum) != 1)
      sum = 0;
    std::fclose(file);
  }
  rusage use{};
  if (ranks <= static_cast<int>(std::thread::hardware_concurrency()) &&
      getrusage(RUSAGE_SELF, &use) == 0)
    sum += use.ru_nivcsw;
  return sum;
}

}  // namespace

void run_threads(int64_t ranks, const std::function<void(Runtime&)>& fn) {
  RunOptions options;
  options.world = ranks;
  options.backend = backend_named("threads");
  run(options, fn);
}

Turns take_rounds(Communicator& comm, const std::vector<Contender>& contenders,
                  int64_t rounds) {
  using Clock = std::chrono::steady_clock;
  struct Stamp {
    Clock::time_point start, end;
    double own;
  };
  const Call call{StepKind::kBarrier, "benchmark"};
  const Call gather{StepKind::kAllGatherBytes, "benchmark"};
  std::vector<Stamp> stamps(static_cast<size_t>(comm.size()));
  std::vector<std::vector<double>> quiet(contenders.size()), all = quiet;
  for (int64_t round = -1; round < rounds; ++round) {  // the first one warms up
    const long before = comm.rank() == 0 ? disturbances(comm.size()) : 0;
    std::vector<double> times;
    for (const Contender& contender : contenders) {
      comm.barrier(call);
      Stamp mine;
      mine.start = Clock::now();
      mine.own = contender.run();
      mine.end = Clock::now();
      comm.all_gather_bytes(gather, &mine, sizeof(mine), stamps.data());
      Clock::time_point start = mine.start, end = mine.end;
      for (const Stamp& s : stamps) {
        start = std::min(start, s.start);
        end = std::max(end, s.end);
      }
      times.push_back(mine.own >= 0
                          ? mine.own
                          : std::chrono::duration<double>(end - start).count());
    }
    if (comm.rank() != 0 || round < 0) continue;
    const bool disturbed = disturbances(comm.size()) != before;
    for (size_t i = 0; i < times.size(); ++i) {
      all[i].push_back(times[i]);
      if (!disturbed) quiet[i].push_back(times[i]);
    }
  }
  if (comm.rank() != 0) return {};
  const auto kept = static_cast<int64_t>(quiet[0].size());
  if (kept > 0) return {std::move(quiet), rounds - kept};
  return {std::move(all), 0};
}

std::vector<std::vector<double>> take_turns(
    Communicator& comm, const std::vector<Contender>& contenders,
    int64_t rounds) {
  auto times = take_rounds(comm, contenders, rounds).times;
  times.resize(contenders.size());
  for (auto& t : times) std::sort(t.begin(), t.end());
  return times;
}

double median(const std::vector<double>& ascending) {
  return ascending[ascending.size() / 2];
}

Ratio ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> r(a.size());
  for (size_t i = 0; i < a.size(); ++i) r[i] = a[i] / b[i];
  std::sort(r.begin(), r.end());
  return {r[r.size() / 4], median(r), r[r.size() * 3 / 4]};
}

}  // namespace dtensor
