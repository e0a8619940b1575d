// SPDX-License-Identifier: Apache-2.0
// Ranks that share no memory, in one process: a run of several processes whose
// job has queues of byte buffers for messages. What passes on it needs nothing
// that only threads have.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/job.h"

namespace dtensor::testing {

// For RunOptions::backend: each rank is a process of its own. Reductions give
// the same bits as on thread ranks.
std::shared_ptr<Backend> message_passing_backend(int64_t world);
// Two ranks are threads of each process.
std::shared_ptr<Backend> processes_of_2(int64_t world);

// Makes the backend of a process, from the arguments of HostBackend; empty: a
// HostBackend.
using MakeBackend = std::function<std::shared_ptr<Backend>(
    int64_t world, int64_t ranks_per_process, ProcessJob*)>;
std::shared_ptr<Backend> backend_over_messages(int64_t world,
                                               int64_t ranks_per_process,
                                               const MakeBackend&);

// The processes of a run, by their jobs, which outlive it.
std::shared_ptr<Backend> all_processes(int64_t world, int64_t ranks_per_process,
                                       const std::vector<ProcessJob*>&,
                                       const MakeBackend& = {});

}  // namespace dtensor::testing
