// SPDX-License-Identifier: Apache-2.0
// Whether every rank of a job has a processor core of its own.
#pragma once
#include <cstdint>
#include <string>

#include "dtensor/comm/job.h"
#include "dtensor/runtime.h"

namespace dtensor {

// The ranks of one machine, and the number of cores that they may run on.
struct Crowd {
  int64_t ranks = 0, cores = 0;
};

// The crowd of the machine with the fewest cores per rank; `ranks` is the
// number of ranks in this process. Every process of the job has to call it, as
// for ProcessJob::gather(). Only the first process's result covers all
// machines. Without a job, this process is the only one.
Crowd most_crowded(ProcessJob*, int64_t ranks);

// Removes from waited_for the time for which the rank may have waited for a
// core: that of its thread, or all where that is unknown.
RunReport without_core_waits(RunReport);

// "4 ranks share 2 cores, so ...": why waiting times do not show which rank was
// late. "" if every rank has a core.
std::string crowd_text(const Crowd&);

}  // namespace dtensor
