// SPDX-License-Identifier: Apache-2.0
// The collectives of thread ranks, each through the public redistribute() and
// through the Communicator, against the least that memory allows and whoever
// else can do the same.
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
  // f32 elements of the global tensor; of a turn n x n.
  int64_t n = 0;
  int64_t repeats = 1;  // so many times for one measurement

  std::string name() const;
  int64_t elements() const;  // of the global tensor
};

std::vector<CommCase> comm_cases();

// Others that do the same, if they can, made by every rank of the run of
// c.ranks; what they hold is given back with them, before the run ends.
using Rivals =
    std::function<std::vector<Contender>(const CommCase& c, Runtime&)>;

// Prints every case as a table. `only`: cases whose name has this.
void compare_collectives(int64_t rounds, const std::string& only,
                         const Rivals& rivals);
void compare_agreement(int64_t rounds);
// A product of 1024 x 1024 matrices on two ranks, whose second operand is split
// or whole: what it takes beyond the product alone.
void compare_matmul(int64_t rounds);

}  // namespace dtensor
