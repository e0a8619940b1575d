// SPDX-License-Identifier: Apache-2.0
// Finds this process's number among the job's processes on this machine, from
// the environment variables that its launcher sets.
#pragma once
#include <cstdint>
#include <utility>

#include "dtensor/comm/process_backend.h"

namespace dtensor {

struct LocalProcess {
  int64_t index = 0;
  int64_t count = 0;  // 0: unknown
};

// Reads the variables of this backend's launchers or, if none of them is set,
// those of the other backends' launchers. Throws an Error that says what to
// set if none of these is set either, or if the number cannot be read.
LocalProcess local_process(const ProcessBackend&);

// The number of tasks that srun has started, of which this process is one, and
// this process's number among them; 1 and 0 without srun.
std::pair<int64_t, int64_t> tasks_of_srun();

}  // namespace dtensor
