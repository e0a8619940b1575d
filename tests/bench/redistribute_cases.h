// SPDX-License-Identifier: Apache-2.0
// Redistributions among thread ranks, against a copy of as many bytes and
// against the same reads written by hand.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/comm/communicator.h"
#include "dtensor/placement/spec.h"
#include "dtensor/tensor.h"
#include "tests/bench/rounds.h"

namespace dtensor {

struct RedistributeCase {
  std::string name;
  int64_t ranks;
  const Spec *from, *to;
  // The bytes that the case has to read and write, divided by those that it
  // writes.
  int passes = 2;
  // Reads what `rank` needs from every rank's source, and writes it to dst.
  std::function<void(int rank, const std::vector<const char*>& src, char* dst)>
      direct;
  int repeats = 1;  // in one measurement
};

// Cases with n x n matrices (n a multiple of 128), and with small ones.
std::vector<RedistributeCase> redistribute_cases(int64_t n);

// Called by the ranks of a run of c.ranks: contenders 0, 1, ... are a memcpy of
// the local bytes, the direct read between two barriers, the communicator's
// exchange with a schedule made before, and redistribute_local().
std::vector<Contender> redistribute_contenders(const RedistributeCase& c,
                                               Communicator&);

}  // namespace dtensor
