// SPDX-License-Identifier: Apache-2.0
// Times contenders that do the same work. They take turns, so that other work
// of the machine affects all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/runtime.h"

namespace dtensor {

// Runs fn() on thread ranks, even in a process that mpirun has started.
void run_threads(int64_t ranks, const std::function<void(Runtime&)>& fn);

struct Contender {
  std::string name;
  // Called by every rank of the run; returns the seconds that it took by its
  // own clock, or less than 0 to be timed from the first rank's start to the
  // last rank's end.
  std::function<double()> run;
};

// The times of `rounds` rounds, in each of which every contender runs once.
// take_rounds() is collective; only rank 0 gets times.
struct Turns {
  // Seconds, by contender and round. Has only the rounds in which nobody took a
  // core from a rank: no other virtual machine (the steal of /proc/stat), and
  // no other process. If there are no such rounds, it has all rounds.
  std::vector<std::vector<double>> times;
  int64_t dropped = 0;  // rounds left out
};
Turns take_rounds(Communicator&, const std::vector<Contender>&, int64_t rounds);

// take_rounds() without the counts: the times by contender, ascending.
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
