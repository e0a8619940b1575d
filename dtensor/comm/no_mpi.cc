// SPDX-License-Identifier: Apache-2.0
#include "dtensor/comm/mpi.h"
#include "dtensor/placement/error.h"

namespace dtensor {

bool mpi_is_built() { return false; }

ProcessJob& mpi_job(const JobFacts&) {
  fail("run",
       "this program is built without MPI; write --backend threads "
       "(RunOptions::backend), or build it where MPI is installed (./setup.sh "
       "installs Open MPI)");
}

}  // namespace dtensor
