// How a run went, when it is over.
#pragma once
#include <string>
#include <vector>

namespace dtensor {

struct RunReport {
  double seconds = 0;
  // Of each rank: the seconds for which others slept in collectives and it was
  // the last to come. A wait too short to sleep in is not counted.
  std::vector<double> waited_for;
};

// "rank 3 was waited for 4.1 s of 12.0 s (34 %), rank 1 for 2.0 s (17 %)": of
// those that were waited for longer than a second, the longest first. Empty
// when there are none.
std::string straggler_text(const RunReport&);

}  // namespace dtensor
