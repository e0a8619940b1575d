// Ranks that are threads of the processes of an MPI job. Programs that are
// built without MPI link no_mpi.cc instead.
#pragma once
#include <cstdint>

#include "dtensor/comm/job.h"

namespace dtensor {

bool mpi_is_built();

// Whether the environment (Open MPI's, PMI's, PMIx's, Slurm's) says that
// mpirun, srun or the like started this process as one of several.
bool started_by_mpi();
// As started_by_mpi(), but also true if it is the only process.
bool launched_by_mpi();
int64_t process_by_environment();

// The first call initializes MPI and compares the facts of all processes; MPI
// is finalized at the end of the program. A program that initialized MPI itself
// also finalizes it. Throws Error if MPI is not built in or cannot be used, or
// if the facts differ.
ProcessJob& mpi_job(const JobFacts& = JobFacts::of_process());

}  // namespace dtensor
