// Messages between processes of one machine, through memory that they share:
// short ones are copied into it and out of it, of long ones the receiver reads
// the sender's memory in place.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "dtensor/comm/ring.h"
#include "dtensor/comm/transport.h"

namespace dtensor {

// An MPI_Comm as Fortran knows it: an integer, whichever MPI it is, so that
// mpi.h stays in the sources (MPI-4.0, section 19.3.4).
using CommHandle = int;

class SharedRings {
 public:
  // Called by all processes of `all`. Each has so many ranks.
  // With DTENSOR_MPI_SHARED_MEMORY=0 in the environment there are no rings, and
  // everything goes through MPI.
  SharedRings(CommHandle all, int64_t ranks_per_process);
  ~SharedRings();
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  // Null: the other rank's process is on another machine, or it is a long
  // message and the system lets nobody read another process's memory.
  Ring* to(const Channel&, int64_t bytes) const;
  Ring* from(const Channel& c, int64_t bytes) const {
    return to({c.to, c.from, c.lane}, bytes) ? ring(c) : nullptr;
  }

  // A process of this machine that has ended; -1: none.
  int lost() const;

  // Copies from the memory of the process of that rank. Throws Error.
  void read(int64_t rank, void* to, const void* there, int64_t bytes) const;

 private:
  struct Neighbour {
    pid_t pid;
    Ring* rings;  // what it receives: by its rank, the sender, the lane
  };
  const Neighbour* neighbour(int64_t rank) const;
  Ring* ring(const Channel&) const;

  const int64_t per_process_;
  int64_t senders_ = 0;     // ranks of this machine
  std::vector<int> place_;  // by process: among those here, or -1
  std::vector<Neighbour> here_;
  // Of the processes here, what becomes readable when one ends; and which.
  std::vector<pollfd> ends_;
  std::vector<int> processes_;
  bool reads_ = false;
};

}  // namespace dtensor
