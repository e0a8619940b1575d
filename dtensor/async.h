// SPDX-License-Identifier: Apache-2.0
// Redistributions that run on a second thread of the rank.
//
// The thread starts with the first call of begin_moves() and ends with run().
// It has a RankContext of its own, with its own communicators, so that the
// collectives of the two threads never mix. It holds the tensors that a move
// reads until the move is done, so that the main thread can drop them without
// waiting. A move is carried out even if its result has been dropped, since
// other ranks may use their results. While the queue has 256 calls of
// begin_moves(), the next call waits.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {

// A local part (see DistTensor::local()) that may not exist yet.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits for the part and returns it. If the move failed, every call rethrows
  // its error. Only the rank's main thread may call this.
  virtual const Tensor& wait() = 0;
  // The Storage::version() of the part when the move was done. REQUIRES: wait()
  // has returned.
  virtual uint64_t version() const = 0;
};

struct BeginOptions {
  // If set, there is only one move, and it starts from this result of an
  // earlier call instead of parts[0]. begin_moves() first waits for the result,
  // unless the earlier call had `continues`.
  std::shared_ptr<Pending> after = nullptr;
  // If set, there is only one move, and a later call that has its result as
  // `after` need not wait for it.
  bool continues = false;
  bool consume = false;  // may overwrite parts that nothing else refers to
};

// Begins moves[i] with this rank's parts[i], which is undefined if the rank is
// not in the mesh of the move's source. Returns a result for each move. Several
// moves are planned together; all their sources and destinations must be on one
// mesh. Calls are carried out in the order in which they begin. A part is first
// converted to the type of its move's source. The moves' events are appended to
// RankContext::events in the first wait() for any of the results. Collective
// over the ranks of the moves.
std::vector<std::shared_ptr<Pending>> begin_moves(RankContext&,
                                                  std::span<const Move>,
                                                  std::vector<Tensor> parts,
                                                  const BeginOptions& = {});

}  // namespace dtensor
