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

// Begins to move this rank's part (undefined if the rank is not in the source's
// mesh); moves are carried out in the order in which they begin. A part of
// another type is first converted to that of the move's source. With `after`,
// the result of that move is the part; this call waits for it unless
// begin_move() returned it. The move's events are added to the rank's events
// when the result is waited for. Collective over the ranks of the move.
std::shared_ptr<Pending> begin_move(RankContext&, const Move&, Tensor part,
                                    const std::shared_ptr<Pending>& after);

// Begins several moves within one mesh, which are planned together; returns a
// result for each. With `consume`, parts that nobody else holds may be
// overwritten. Collective over the mesh.
std::vector<std::shared_ptr<Pending>> begin_moves(RankContext&,
                                                  std::span<const Move>,
                                                  std::vector<Tensor> parts,
                                                  bool consume = false);

}  // namespace dtensor
