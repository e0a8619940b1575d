// SPDX-License-Identifier: Apache-2.0
// For benchmarks of several MPI processes. Process 0 tells the other processes
// when to make MPI calls with it, in turns with its own thread ranks.
#pragma once
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>
#include <thread>

#include "tests/command_line.h"

namespace dtensor {

inline int process() {
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  return me;
}
inline int processes() {
  int count = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return count;
}

// parse_and_run() for several processes. Passes the thread level that MPI
// provides to fn(). Only process 0 prints the help and the errors of the flags.
// An error of fn() ends all processes.
inline int parse_and_run_over_mpi(int level, Flags& flags,
                                  std::string_view about, int argc, char** argv,
                                  const std::function<int(int level)>& fn) {
  int provided = 0, code = 1;
  MPI_Init_thread(&argc, &argv, level, &provided);
  try {
    const auto parsed = parse(flags, about, argc, argv, process() == 0);
    code = parsed ? *parsed : fn(provided);
  } catch (const std::exception& e) {
    print_error(argv, e);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}

// True if there are too few processes or cores to take turns with threads, or
// the thread level is too low. Process 0 then prints that.
inline bool refuse(bool enough_processes, int level) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  if (enough_processes && level >= MPI_THREAD_SERIALIZED &&
      CPU_COUNT(&cpus) > 1)
    return false;
  if (process() == 0)
    std::fprintf(stderr,
                 "%d processes of %d cores; start two that may use two cores "
                 "each, with mpirun --bind-to none -n 2\n",
                 processes(), CPU_COUNT(&cpus));
  return true;
}

// Process 0 calls it. The other processes, in take_part(), call `call(what)`.
inline void tell_others(int what) {
  for (int p = 1; p < processes(); ++p)
    MPI_Send(nullptr, 0, MPI_CHAR, p, what, MPI_COMM_WORLD);
}

// The other processes call it; it returns when process 0 tells `end`. (They
// sleep between calls, so that the thread ranks have the cores.)
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
