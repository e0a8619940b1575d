// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/tcp_processes.h"

#include <thread>
#include <utility>

#include "dtensor/comm/tcp/tcp_rendezvous.h"

namespace dtensor::testing {
namespace {

// The jobs and the backend of one run.
struct Processes {
  explicit Processes(int count) : jobs(tcp_jobs(count)) {}
  ~Processes() {
    backend = nullptr;
    part(jobs);
  }
  std::vector<std::unique_ptr<TcpJob>> jobs;
  std::shared_ptr<Backend> backend;
};

}  // namespace

uint16_t free_port() {
  return local_address(listen_at(addresses_of("127.0.0.1", 0).at(0))).port();
}

void in_threads(int n, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
}

std::vector<std::unique_ptr<TcpJob>> tcp_jobs(int processes) {
  std::vector<std::unique_ptr<TcpJob>> jobs(static_cast<size_t>(processes));
  const uint16_t port = free_port();
  in_threads(processes, [&](int p) {
    TcpPlace place;
    place.process = p;
    place.processes = processes;
    place.port = port;
    jobs[static_cast<size_t>(p)] =
        std::make_unique<TcpJob>(p, tcp_rendezvous(place));
  });
  return jobs;
}

void part(std::vector<std::unique_ptr<TcpJob>>& jobs) {
  in_threads(static_cast<int>(jobs.size()),
             [&](int p) { jobs[static_cast<size_t>(p)] = nullptr; });
}

std::shared_ptr<Backend> backend_over_tcp(int64_t world,
                                          int64_t ranks_per_process,
                                          const MakeBackend& make) {
  const auto made = std::make_shared<Processes>(
      static_cast<int>((world + ranks_per_process - 1) / ranks_per_process));
  std::vector<ProcessJob*> jobs;
  for (const auto& job : made->jobs) jobs.push_back(job.get());
  made->backend = all_processes(world, ranks_per_process, jobs, make);
  return {made, made->backend.get()};
}

std::shared_ptr<Backend> over_tcp(int64_t world) {
  return backend_over_tcp(world, 1, {});
}
std::shared_ptr<Backend> over_tcp_of_2(int64_t world) {
  return backend_over_tcp(world, 2, {});
}

}  // namespace dtensor::testing
