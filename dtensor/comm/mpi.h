// Ranks that are threads of the processes of an MPI job. no_mpi.cc is the twin
// for programs that are built without.
#pragma once
#include <cstdint>

#include "dtensor/comm/job.h"

namespace dtensor {

bool mpi_is_built();

// Whether mpirun, srun or the like has started this process as one of several,
// and which one, by its environment (Open MPI's, PMI's, PMIx', Slurm's). 0
// where nothing is said.
bool started_by_mpi();
// The same where it may be the only one.
bool launched_by_mpi();
int64_t process_by_environment();

// MPI begins with the first call, which compares the facts of all processes,
// and ends with the program; a program that has begun it itself ends it itself.
// Throws Error when MPI cannot be used, or is not built, and when the facts
// differ.
ProcessJob& mpi_job(const JobFacts& = JobFacts::of_process());

}  // namespace dtensor
