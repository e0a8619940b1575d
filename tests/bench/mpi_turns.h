// SPDX-License-Identifier: Apache-2.0
// Benchmarks in several MPI processes, of which process 0 has the others make
// MPI calls with it, while its thread ranks take turns with them.
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

// parse_and_run() of several processes, which gives fn() the level that MPI
// provides. Process 0 alone prints the help and the errors of the flags; an
// error of fn() ends all processes.
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

// Whether the processes or their cores are too few to take turns with threads;
// process 0 says so.
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

// By process 0: the others call take_part()'s function with `what`.
inline void tell_others(int what) {
  for (int p = 1; p < processes(); ++p)
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
