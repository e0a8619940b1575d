// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of the processes of an MPI job. Programs that are
// built without MPI link no_mpi.cc instead of mpi/mpi_job.cc.
#pragma once
#include "dtensor/comm/process_backend.h"

namespace dtensor {

bool mpi_is_built();

// Returns the row of --backend mpi in the table of process_backend.h. It knows
// the environment variables of Open MPI, PMI, PMIx and Slurm.
ProcessBackend mpi_backend();

// The first call initializes MPI, unless the program has done so, and compares
// the facts of all processes. MPI is finalized at the end of the program; a
// program that initialized MPI itself has to finalize it. Throws Error if MPI
// is not built in or cannot be used, or if the facts differ.
ProcessJob& mpi_job(const JobFacts&);

}  // namespace dtensor
