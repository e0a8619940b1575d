// SPDX-License-Identifier: Apache-2.0
// The collectives of thread ranks, through redistribute() and through the
// Communicator, against the least traffic that memory allows and against rivals
// such as MPI.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dtensor/runtime.h"
#include "tests/bench/rounds.h"

namespace dtensor {

struct CommCase {
  enum class Kind {
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kTurn,      // rows to columns
    kTurnBack,  // columns to rows
    kBarrier
  };
  Kind kind;
  int64_t ranks;
  // f32 elements of the global tensor; for a turn, it is n x n.
  int64_t n = 0;
  int64_t repeats = 1;  // calls per measurement

  std::string name() const;
  int64_t elements() const;  // of the global tensor
};

std::vector<CommCase> comm_cases();

// Makes contenders that do the same by other means, if there are any. Every
// rank of a run of c.ranks calls it. They are destroyed before the run ends.
using Rivals =
    std::function<std::vector<Contender>(const CommCase& c, Runtime&)>;

// Prints a table of the cases whose name contains `only`.
void compare_collectives(int64_t rounds, const std::string& only,
                         const Rivals& rivals);
void compare_agreement(int64_t rounds);
// Times a product of 1024 x 1024 matrices on two ranks. Its second operand is
// split, and is gathered first or read where it lies; or it is whole.
void compare_matmul(int64_t rounds);

}  // namespace dtensor
