// Which of the job's processes on this machine this one is, from the
// environment variables that its launcher sets:
//
//   LOCAL_RANK, LOCAL_WORLD_SIZE                    torchrun's
//   OMPI_COMM_WORLD_LOCAL_RANK, ..._LOCAL_SIZE      Open MPI's
//   MPI_LOCALRANKID, MPI_LOCALNRANKS                MPICH's, Intel MPI's
//   SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE        srun's
#pragma once
#include <cstdint>
#include <utility>

namespace dtensor {

struct LocalProcess {
  int64_t index = 0;
  int64_t count = 0;  // 0: unknown
};

// torchrun's variables are read last for a job over MPI, and first for one over
// TCP. Throws an Error that says what to set if none of the variables is set.
LocalProcess local_process(bool over_mpi);

// The number of tasks that srun has started with this process, and its number
// among them; 1 and 0 without srun.
std::pair<int64_t, int64_t> tasks_of_srun();

}  // namespace dtensor
