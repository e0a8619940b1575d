#include "tests/bench/rounds.h"

#include <algorithm>
#include <chrono>

namespace dtensor {

std::vector<std::vector<double>> take_turns(
    Communicator& comm, const std::vector<Contender>& contenders, int rounds) {
  using Clock = std::chrono::steady_clock;
  struct Stamp {
    Clock::time_point start, end;
    double own;
  };
  const Call call{StepKind::kBarrier, "benchmark"};
  const Call gather{StepKind::kAllGatherBytes, "benchmark"};
  std::vector<Stamp> stamps(static_cast<size_t>(comm.size()));
  std::vector<std::vector<double>> times(contenders.size());
  for (int round = -1; round < rounds; ++round)  // the first one warms up
    for (size_t i = 0; i < contenders.size(); ++i) {
      comm.barrier(call);
      Stamp mine;
      mine.start = Clock::now();
      mine.own = contenders[i].run();
      mine.end = Clock::now();
      comm.all_gather_bytes(gather, &mine, sizeof(mine), stamps.data());
      if (comm.rank() != 0 || round < 0) continue;
      Clock::time_point start = mine.start, end = mine.end;
      for (const Stamp& s : stamps) {
        start = std::min(start, s.start);
        end = std::max(end, s.end);
      }
      times[i].push_back(
          mine.own >= 0 ? mine.own
                        : std::chrono::duration<double>(end - start).count());
    }
  for (auto& t : times) std::sort(t.begin(), t.end());
  return times;
}

double median(const std::vector<double>& ascending) {
  return ascending[ascending.size() / 2];
}

}  // namespace dtensor
