// A summary of a finished run.
#pragma once
#include <string>
#include <vector>

namespace dtensor {

struct RunReport {
  double seconds = 0;
  // By rank: the seconds for which other ranks slept in collectives that this
  // rank was the last to reach. Waits too short for sleeping do not count.
  std::vector<double> waited_for;
};

// "rank 3 was waited for 4.1 s of 12.0 s (34 %), rank 1 for 2.0 s (17 %)": the
// ranks for which others waited longer than a second, the longest first. Empty
// if there are none.
std::string straggler_text(const RunReport&);

}  // namespace dtensor
