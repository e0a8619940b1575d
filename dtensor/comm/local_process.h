// Which of the processes of a job on this machine this one is, by what its
// starter says in the environment:
//
//   LOCAL_RANK, LOCAL_WORLD_SIZE                    torchrun's
//   OMPI_COMM_WORLD_LOCAL_RANK, ..._LOCAL_SIZE      Open MPI's
//   MPI_LOCALRANKID, MPI_LOCALNRANKS                MPICH's, Intel MPI's
//   SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE        srun's
#pragma once
#include <cstdint>

namespace dtensor {

struct LocalProcess {
  int64_t index = 0;
  int64_t count = 0;  // 0: nobody says
};

// Of a job over MPI, where a process that torchrun has started counts last, or
// over TCP, where it counts first. Throws the Error that says what to set where
// nothing is said.
LocalProcess local_process(bool over_mpi);

}  // namespace dtensor
