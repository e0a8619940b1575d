// SPDX-License-Identifier: Apache-2.0
// Makes a run of several processes, which are all emulated in this one: ranks
// share no memory, and the job passes messages through queues of byte buffers.
// Code that works in such a run needs nothing that only threads of one process
// have.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/job.h"

namespace dtensor::testing {

// Makes a backend for RunOptions::backend: each rank is a process of its own.
// Reductions give the same bits as on thread ranks.
std::shared_ptr<Backend> message_passing_backend(int64_t world);
// The same, but two ranks are threads of each process.
std::shared_ptr<Backend> processes_of_2(int64_t world);

// A function that makes the backend of one process, from the arguments of
// HostBackend's constructor. An empty function makes a HostBackend.
using MakeBackend = std::function<std::shared_ptr<Backend>(
    int64_t world, int64_t ranks_per_process, ProcessJob*)>;
std::shared_ptr<Backend> backend_over_messages(int64_t world,
                                               int64_t ranks_per_process,
                                               const MakeBackend&);

// Makes the backend of a run from its processes' jobs, which must outlive it.
std::shared_ptr<Backend> all_processes(int64_t world, int64_t ranks_per_process,
                                       const std::vector<ProcessJob*>&,
                                       const MakeBackend& = {});

}  // namespace dtensor::testing
