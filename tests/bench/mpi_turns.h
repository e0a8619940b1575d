// How process 0 of a benchmark has the others make MPI calls with it, while its
// thread ranks take turns with them.
#pragma once
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>

#include <chrono>
#include <functional>
#include <thread>

namespace dtensor {

// By process 0: the others call take_part()'s function with `what`.
inline void tell_others(int what) {
  int processes = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  for (int p = 1; p < processes; ++p)
    MPI_Send(nullptr, 0, MPI_CHAR, p, what, MPI_COMM_WORLD);
}

// By the others, until they are told `end`. (They leave the processors to the
// thread ranks in between.)
inline void take_part(int end, const std::function<void(int what)>& call) {
  for (;;) {
    int come = 0;
    MPI_Status status;
    MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &come, &status);
    if (!come) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      continue;
    }
    MPI_Recv(nullptr, 0, MPI_CHAR, 0, status.MPI_TAG, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (status.MPI_TAG == end) return;
    call(status.MPI_TAG);
  }
}

}  // namespace dtensor
