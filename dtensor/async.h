// Redistributions that a thread of the rank's own carries out.
//
// The thread starts with the first of them and ends with run(). It has a
// context of its own, whose groups are not those of the rank's thread, so that
// the collectives of the two never mix; what it carries out belongs to it until
// it is done, so that nobody has to wait to drop a tensor. What a rank drops is
// carried out too, since others may use their results. So that this does not
// pile up, a rank that is 256 moves ahead waits before it begins one more.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "dtensor/placement/plan.h"
#include "dtensor/rank_context.h"
#include "dtensor/tensor.h"

namespace dtensor {

// A local part that is being made.
class Pending {
 public:
  virtual ~Pending() = default;
  // The part, when it is there; throws what making it threw, each time. By the
  // rank's own thread.
  virtual const Tensor& wait() = 0;
  // Of the part's storage when it was made. REQUIRES: wait() has returned.
  virtual uint64_t version() const = 0;
};

// Begins the move of a part (undefined where this rank is not in the source's
// mesh) of that source, after all that were begun before. Parts of another type
// are converted first. With `after` the part is what that one makes, for which
// this one does not wait if begin_move() began it. What is sent appears among
// the rank's events when the result is waited for.
std::shared_ptr<Pending> begin_move(RankContext&, const Move&, Tensor part,
                                    const std::shared_ptr<Pending>& after);

// Several moves between the ranks of one mesh, planned together; a result for
// each. Parts that nobody else holds may be overwritten with `consume`.
std::vector<std::shared_ptr<Pending>> begin_moves(RankContext&,
                                                  std::span<const Move>,
                                                  std::vector<Tensor> parts,
                                                  bool consume = false);

}  // namespace dtensor
