// Contenders that do the same work and take turns, so that what else the
// machine does meanwhile happens to all of them.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/runtime/comm/communicator.h"

namespace dtensor {

struct Contender {
  std::string name;
  // Called by every rank of the run; returns the seconds that it took by its
  // own clock, or less than 0 to be timed from the first rank's start to the
  // last rank's end.
  std::function<double()> run;
};

// Every contender `rounds` times, in turn; their times in seconds, by
// contender, ascending. Collective; only rank 0 gets them.
std::vector<std::vector<double>> take_turns(Communicator&,
                                            const std::vector<Contender>&,
                                            int rounds);

double median(const std::vector<double>& ascending);

}  // namespace dtensor
