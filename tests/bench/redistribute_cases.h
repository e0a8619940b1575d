// SPDX-License-Identifier: Apache-2.0
// Redistributions among thread ranks, each against a copy of as many bytes and
// the same reads written out by hand.
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
  // The bytes that it has to read and write, as a multiple of those it writes.
  int passes = 2;
  // dst = what `rank` needs, read from every rank's source.
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
