// Whether the ranks of a job have a processor core each.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/comm/job.h"

namespace dtensor {

// The ranks of one machine, and the cores that they may run on.
struct Crowd {
  int64_t ranks = 0, cores = 0;
};

// The crowd of the machine that has the fewest cores for each rank; `ranks` are
// this process's. Collective over the processes of the job, like
// ProcessJob::gather(); only the first one's result counts. Without a job this
// process is the only one.
Crowd most_crowded(ProcessJob*, int64_t ranks);

// "4 ranks share 2 cores, so ...": why nobody can say which rank was waited
// for. "" where each rank has a core.
std::string crowd_text(const Crowd&);

}  // namespace dtensor
