// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/backend.h"

#include <algorithm>
#include <vector>

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/mpi.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/comm/process_backend.h"
#include "dtensor/comm/tcp.h"

namespace dtensor {
namespace {

// Returns the job of the row with this name. Null if there is no such row, as
// for "threads": then all ranks are threads of this process.
ProcessJob* job_named(std::string_view name) {
  const ProcessBackend* row = process_backend(name);
  return row ? &row->job("", JobFacts::of_process()) : nullptr;
}

}  // namespace

std::span<const ProcessBackend> process_backends() {
  // If the environment has the variables of several launchers, the first of
  // their rows counts; backend_by_launcher() skips rows that are not built in.
  static const ProcessBackend table[] = {mpi_backend(), tcp_backend()};
  return table;
}

const ProcessBackend* process_backend(std::string_view name) {
  for (const ProcessBackend& b : process_backends())
    if (b.name == name) return &b;
  return nullptr;
}

std::string backend_names(std::string_view between) {
  std::vector<std::string_view> names;
  for (const ProcessBackend& b : process_backends()) names.push_back(b.name);
  return fmt::format("{}", fmt::join(names, between));
}

std::string_view backend_by_launcher() {
  for (const ProcessBackend& b : process_backends())
    if (b.lacks.empty() && b.started()) return b.name;
  return "threads";
}

std::span<const DataBackend> data_backends() {
  static const DataBackend table[] = {
      {.name = "threads",
       .make = [](int64_t world, int64_t ranks_per_process,
                  ProcessJob* job) -> std::shared_ptr<Backend> {
         return std::make_shared<HostBackend>(world, ranks_per_process, job);
       }},
      nccl_backend()};
  return table;
}

const DataBackend* data_backend(std::string_view name) {
  if (process_backend(name)) name = "threads";
  for (const DataBackend& b : data_backends())
    if (b.name == name) return &b;
  return nullptr;
}

const DataBackend& gpu_backend() {
  const auto all = data_backends();
  return *std::find_if(all.begin(), all.end(), [](const DataBackend& b) {
    return !b.between_gpus.empty();
  });
}

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  const DataBackend* data = data_backend(name);
  std::vector<std::string_view> names;
  for (const DataBackend& b : data_backends()) names.push_back(b.name);
  DT_CHECK(data, "run", "there is no backend {}; write {}, {}", name,
           fmt::join(names, ", "), backend_names(" or "));
  const ProcessBackend* row = process_backend(name);
  if (row && !row->lacks.empty()) job_named(name);  // throws: not built in
  return [data, name = std::string(name), ranks_per_process](int64_t world) {
    return data->make(
        world, ranks_per_process,
        job_named(data->between_gpus.empty() ? name : backend_by_launcher()));
  };
}

}  // namespace dtensor
