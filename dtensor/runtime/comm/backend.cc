#include "dtensor/runtime/comm/backend.h"

#include "dtensor/runtime/comm/mpi.h"
#include "dtensor/runtime/comm/nccl.h"
#include "dtensor/runtime/comm/tcp.h"
#include "dtensor/runtime/comm/threads.h"

namespace dtensor {

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  if (name == "threads") return thread_backend;
  if (name == "nccl") return [](int64_t world) { return nccl_backend(world); };
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
