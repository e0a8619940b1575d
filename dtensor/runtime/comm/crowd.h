// Whether the ranks of a job have a processor core each.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/runtime/comm/job.h"

namespace dtensor {

// The ranks of one machine, and the cores that they may run on.
struct Crowd {
  int64_t ranks = 0, cores = 0;
};

// That of the machine with the fewest cores for each rank, where this process
// has so many ranks. Called by all processes of the job, as
// ProcessJob::gather() is; only the first one's result counts. Without a job
// this process is the only one.
Crowd most_crowded(ProcessJob*, int64_t ranks);

// "4 ranks share 2 cores, so ...": why nobody can say which rank was waited
// for. "" where each rank has a core.
std::string crowd_text(const Crowd&);

}  // namespace dtensor
