#include "dtensor/runtime/comm/backend.h"

#include "dtensor/runtime/comm/mpi.h"
#include "dtensor/runtime/comm/nccl.h"
#include "dtensor/runtime/comm/threads.h"

namespace dtensor {

BackendFactory backend_named(std::string_view name, int64_t ranks_per_process) {
  if (name == "threads") return thread_backend;
  if (name == "nccl") return [](int64_t world) { return nccl_backend(world); };
  DT_CHECK(name == "mpi", "run",
           "there is no backend {}; write threads, nccl or mpi", name);
  DT_CHECK(mpi_is_built(), "run",
           "this program is built without MPI; write threads, or build it "
           "where MPI is installed (./setup.sh installs Open MPI)");
  return [ranks_per_process](int64_t world) {
    return mpi_backend(world, ranks_per_process);
  };
}

}  // namespace dtensor
