// SPDX-License-Identifier: Apache-2.0
// Carries messages between processes of one machine through shared memory.
// Short messages are copied into it and out of it; the receiver of a long
// message reads it directly from the sender's memory.
#pragma once
#define OMPI_SKIP_MPICXX  // the C interface will do
#include <mpi.h>
#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "dtensor/comm/ring.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// Calls a function of MPI. Throws an Error with MPI's text unless it returns
// MPI_SUCCESS.
#define DT_MPI(function, ...) check_mpi(function(__VA_ARGS__), #function)
void check_mpi(int code, std::string_view function);

class SharedRings {
 public:
  // Called by all processes of `all`; each of them has up to
  // `ranks_per_process` ranks. Makes no rings, so that all messages go through
  // MPI, if a process has DTENSOR_MPI_SHARED_MEMORY=0, or if this machine has
  // only one process or very many ranks.
  SharedRings(MPI_Comm all, int64_t ranks_per_process);
  ~SharedRings();
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  // Returns the ring for a message of that size. Null if there are no rings, if
  // the two ranks are not both on this machine, or if the message is long and
  // the system does not let processes read each other's memory.
  Ring* ring(const Channel&, int64_t bytes) const;

  // Returns a process of this machine that is known to have ended, or -1.
  int lost() const;

  // Copies from the memory of that rank's process to `to`. Throws Error if that
  // fails.
  void read(int64_t rank, void* to, const void* there, int64_t bytes) const;

 private:
  struct Neighbour {
    pid_t pid;
    Ring* rings;  // to its ranks, in order of receiver, sender and lane
  };
  const Neighbour* neighbour(int64_t rank) const;

  const int64_t per_process_;
  int64_t senders_ = 0;     // ranks on this machine
  std::vector<int> place_;  // of each process: index in here_, or -1
  std::vector<Neighbour> here_;
  // File descriptors of this machine's other processes, each readable when its
  // process ends; and, in the same order, the numbers of these processes.
  std::vector<pollfd> ends_;
  std::vector<int> processes_;
  bool reads_ = false;
};

}  // namespace dtensor
