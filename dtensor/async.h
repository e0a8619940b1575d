// SPDX-License-Identifier: Apache-2.0
// Redistributions that run on a second thread of the rank.
//
// The thread starts with the first redistribution and ends with run(). It has a
// RankContext of its own, with its own communicators, so that the collectives
// of the two threads never mix. It owns the tensors of a move until the move is
// done, so that dropping a tensor never waits. A move is carried out even if
// its result has been dropped, since other ranks may use their results. A rank
// with 256 calls of begin_moves() in the queue waits before it adds another.
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
  // If set, a single move starts from the result of an earlier call instead of
  // parts[0]. Unless that call had `continues`, begin_moves() waits for it.
  std::shared_ptr<Pending> after = nullptr;
  bool continues = false;  // a later call may take the only result as `after`
  bool consume = false;    // may overwrite parts that nothing else refers to
};

// Begins moves[i] with this rank's parts[i], which is undefined if the rank is
// not in the mesh of the move's source. Returns a result for each move. Several
// moves are planned together and have to be within one mesh. Calls are carried
// out in the order in which they begin. A part is first converted to the type
// of its move's source. The moves' events are appended to RankContext::events
// in the first wait() for any of the results. Collective over the ranks of the
// moves.
std::vector<std::shared_ptr<Pending>> begin_moves(RankContext&,
                                                  std::span<const Move>,
                                                  std::vector<Tensor> parts,
                                                  const BeginOptions& = {});

}  // namespace dtensor
