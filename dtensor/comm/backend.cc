#include "dtensor/comm/backend.h"

#include "dtensor/comm/mpi.h"
#include "dtensor/comm/nccl.h"
#include "dtensor/comm/tcp.h"

namespace dtensor {

namespace {

// GPU ranks agree over MPI or TCP, depending on which launcher started this
// process.
std::shared_ptr<Backend> nccl_of(int64_t world, int64_t ranks_per_process) {
  if (mpi_is_built() && started_by_mpi())
    return nccl_backend(mpi_job().backend(world, ranks_per_process));
  if (started_by_torchrun())
    return nccl_backend(tcp_job().backend(world, ranks_per_process));
  return nccl_backend(std::make_shared<HostBackend>(world));
}

}  // namespace

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  if (name == "threads")
    return [](int64_t world) { return std::make_shared<HostBackend>(world); };
  if (name == "nccl")
    return [ranks_per_process](int64_t world) {
      return nccl_of(world, ranks_per_process);
    };
  if (name == "tcp")
    return [ranks_per_process](int64_t world) {
      return tcp_job().backend(world, ranks_per_process);
    };
  DT_CHECK(name == "mpi", "run",
           "there is no backend {}; write threads, nccl, mpi or tcp", name);
  if (!mpi_is_built()) mpi_job();  // says what is missing
  return [ranks_per_process](int64_t world) {
    return mpi_job().backend(world, ranks_per_process);
  };
}

}  // namespace dtensor
