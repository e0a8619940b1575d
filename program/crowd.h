// SPDX-License-Identifier: Apache-2.0
// Finds out whether every rank of a job has a processor core of its own.
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
// machines. Without a job (null), the result covers only this process.
Crowd most_crowded(ProcessJob*, int64_t ranks);

// Subtracts from each waited_for the time for which the rank's thread waited
// for a core. Where that time is unknown, sets waited_for to 0.
RunReport without_core_waits(RunReport);

// "4 ranks share 2 cores, so ...": says why waiting times do not show which
// rank was late. "" if every rank has a core, or if no core is known.
std::string crowd_text(const Crowd&);

}  // namespace dtensor
