// SPDX-License-Identifier: Apache-2.0
// Redistributions that run on a second thread of the rank.
//
// The thread starts with the first redistribution and ends with run(). It has
// its own context with its own groups, so that the collectives of the two
// threads never mix. It owns the tensors of a move until the move is done, so
// that dropping a tensor never waits. A move is carried out even if its result
// has been dropped, since other ranks may use theirs. To bound the queue, a
// rank that is 256 moves ahead waits before it begins another one.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {

// A local part that is being computed.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits for the part. Rethrows the error of the move, at every call. Only the
  // rank's main thread may call it.
  virtual const Tensor& wait() = 0;
  // The version of the part's storage when the move was done. REQUIRES: wait()
  // has returned.
  virtual uint64_t version() const = 0;
};

struct BeginOptions {
  // For a single move: its part is the result of this one. The call waits for
  // it here unless it was begun with `continues`.
  std::shared_ptr<Pending> after = nullptr;
  bool continues = false;  // its only result may be the `after` of another call
  bool consume = false;    // may overwrite parts that nobody else holds
};

// Begins to move this rank's parts (undefined if the rank is not in the mesh of
// their source); returns a result for each. Several moves are planned together
// and have to be within one mesh. Calls are carried out in the order in which
// they begin. A part of another type is first converted to that of its move's
// source. The events are added to the rank's events when the first result is
// waited for. Collective over the ranks of the moves.
std::vector<std::shared_ptr<Pending>> begin_moves(RankContext&,
                                                  std::span<const Move>,
                                                  std::vector<Tensor> parts,
                                                  const BeginOptions& = {});

}  // namespace dtensor
