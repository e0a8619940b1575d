// Ranks that are threads of the processes of an MPI job. no_mpi.cc is the twin
// for programs that are built without.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "dtensor/runtime/comm/backend.h"

namespace dtensor {

bool mpi_is_built();

// Whether mpirun, srun or the like has started this process as one of several,
// and which one, by its environment (Open MPI's, PMI's, PMIx', Slurm's). 0
// where nothing is said.
bool started_by_mpi();
int64_t process_by_environment();

// The job that this process is one of. MPI begins with the first call and ends
// with the program; a program that has begun it itself ends it itself. Throws
// Error when MPI cannot be used.
struct MpiJob {
  int process, processes;
};
MpiJob mpi_job();

// Called by all processes equally often, with how each fares: 0 and no text, or
// an exit code and why. Returns what the lowest one that fails has said, in
// every process, as soon as one fails or all have come.
struct MpiVerdict {
  int code = 0;
  std::string text;
};
MpiVerdict mpi_agree(const MpiVerdict& here);

// Called by all processes of the job, with the same numbers. Null when MPI is
// not built.
std::shared_ptr<Backend> mpi_backend(int64_t world, int64_t ranks_per_process);

}  // namespace dtensor
