// SPDX-License-Identifier: Apache-2.0
// Jobs that are connected over TCP as if they were processes, in this process.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/tcp/tcp_job.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor::testing {

// A port of 127.0.0.1 at which nobody listens right now.
uint16_t free_port();

// Runs work(i) for i from 0 to n - 1, each in a thread. Returns when all end.
void in_threads(int n, const std::function<void(int)>& work);

// Makes the jobs of a run, which are connected over the loopback device.
std::vector<std::unique_ptr<TcpJob>> tcp_jobs(int processes);
// Destroys the jobs, in a thread each, since they say goodbye to each other.
void part(std::vector<std::unique_ptr<TcpJob>>&);

// Backends over TCP like those of message_passing.h: each rank is a process of
// its own, or two ranks are threads of each process.
std::shared_ptr<Backend> over_tcp(int64_t world);
std::shared_ptr<Backend> over_tcp_of_2(int64_t world);
std::shared_ptr<Backend> backend_over_tcp(int64_t world,
                                          int64_t ranks_per_process,
                                          const MakeBackend&);

}  // namespace dtensor::testing
