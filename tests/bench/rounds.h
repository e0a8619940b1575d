// SPDX-License-Identifier: Apache-2.0
// Contenders that do the same work and take turns, so that what else the
// machine does meanwhile happens to all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/runtime.h"

namespace dtensor {

// A run of thread ranks, also in a process that mpirun has started.
void run_threads(int64_t ranks, const std::function<void(Runtime&)>& fn);

struct Contender {
  std::string name;
  // Called by every rank of the run; returns the seconds that it took by its
  // own clock, or less than 0 to be timed from the first rank's start to the
  // last rank's end.
  std::function<double()> run;
};

// Every contender `rounds` times, in turn. Collective; only rank 0 gets
// anything.
struct Turns {
  // Seconds, by contender and round, of the rounds in which nobody else took a
  // core that a rank had: another virtual machine (the steal of /proc/stat) or
  // another process. Of all rounds when none was so.
  std::vector<std::vector<double>> times;
  int64_t dropped = 0;  // rounds
};
Turns take_rounds(Communicator&, const std::vector<Contender>&, int64_t rounds);

// The times alone, by contender, ascending.
std::vector<std::vector<double>> take_turns(Communicator&,
                                            const std::vector<Contender>&,
                                            int64_t rounds);

double median(const std::vector<double>& ascending);

// The quartiles of a[i] / b[i] over the rounds i.
struct Ratio {
  double low, median, high;
};
Ratio ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace dtensor
