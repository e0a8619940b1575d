// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/backend.h"

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

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  if (name == "nccl")
    return [ranks_per_process](int64_t world) {
      return nccl_backend(world, ranks_per_process,
                          job_named(backend_by_launcher()));
    };
  const ProcessBackend* row = process_backend(name);
  DT_CHECK(row || name == "threads", "run",
           "there is no backend {}; write threads, nccl, {}", name,
           backend_names(" or "));
  if (row && !row->lacks.empty()) job_named(name);  // throws: not built in
  return [name = std::string(name), ranks_per_process](int64_t world) {
    return std::make_shared<HostBackend>(world, ranks_per_process,
                                         job_named(name));
  };
}

}  // namespace dtensor
