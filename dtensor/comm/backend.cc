#include "dtensor/comm/backend.h"

#include "dtensor/comm/host_backend.h"
#include "dtensor/comm/mpi.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/comm/tcp.h"

namespace dtensor {
namespace {

// A backend of ranks in several processes.
struct Row {
  std::string_view name;
  bool (*started)();  // its launcher started this process, as one of several
  ProcessJob& (*job)();
};
constexpr Row kRows[] = {
    {"mpi", [] { return mpi_is_built() && started_by_mpi(); },
     []() -> ProcessJob& { return mpi_job(); }},
    {"tcp", started_by_torchrun, []() -> ProcessJob& { return tcp_job(); }},
};

ProcessJob* job_named(std::string_view name) {
  for (const Row& r : kRows)
    if (r.name == name) return &r.job();
  return nullptr;
}

}  // namespace

std::string_view backend_by_launcher() {
  for (const Row& r : kRows)
    if (r.started()) return r.name;
  return "threads";
}

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  if (name == "nccl")
    return [ranks_per_process](int64_t world) {
      return nccl_backend(world, ranks_per_process,
                          job_named(backend_by_launcher()));
    };
  bool known = name == "threads";
  for (const Row& r : kRows) known |= r.name == name;
  DT_CHECK(known, "run",
           "there is no backend {}; write threads, nccl, mpi or tcp", name);
  if (name == "mpi" && !mpi_is_built()) mpi_job();  // says what is missing
  return [name = std::string(name), ranks_per_process](int64_t world) {
    return std::make_shared<HostBackend>(world, ranks_per_process,
                                         job_named(name));
  };
}

}  // namespace dtensor
