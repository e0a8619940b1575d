// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/mpi.h"
#include "dtensor/placement/error.h"

namespace dtensor {

bool mpi_is_built() { return false; }

ProcessJob& mpi_job(const JobFacts&) {
  fail("run",
       "this program is built without MPI; build it where MPI is installed "
       "(./setup.sh installs Open MPI), start it with torchrun and --backend "
       "tcp, or start one process with --backend threads");
}

}  // namespace dtensor
