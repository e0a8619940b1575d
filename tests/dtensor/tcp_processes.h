// SPDX-License-Identifier: Apache-2.0
// Processes that are connected over TCP, all of which are this one.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/comm/tcp/tcp_job.h"
#include "tests/dtensor/message_passing.h"

namespace dtensor::testing {

// Nobody listens there, at 127.0.0.1, for now.
uint16_t free_port();

// work(i) in a thread each, for i from 0 to below n.
void in_threads(int n, const std::function<void(int)>& work);

// So many, that have met on the loopback device.
std::vector<std::unique_ptr<TcpJob>> tcp_jobs(int processes);
// They say goodbye to each other.
void part(std::vector<std::unique_ptr<TcpJob>>&);

// As those of message_passing.h: each rank is a process of its own, or two are
// threads of each process.
std::shared_ptr<Backend> over_tcp(int64_t world);
std::shared_ptr<Backend> over_tcp_of_2(int64_t world);
std::shared_ptr<Backend> backend_over_tcp(int64_t world,
                                          int64_t ranks_per_process,
                                          const MakeBackend&);

}  // namespace dtensor::testing
