// What was decided for a call of an operator, and for the calls like it.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dtensor/execution.h"
#include "dtensor/ops/attrs.h"
#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/choose.h"
#include "dtensor/placement/rule.h"
#include "dtensor/rank_context.h"

namespace dtensor {

class Op;
struct InnerExchange;  // compute.cc

// The choice, with its assignment of the rule's factors, and what follows.
struct Decision : Choice {
  std::optional<BoundRule> rule;  // none for operators without one
  std::vector<Shape> out_local;   // shapes of this rank's parts
  bool here = true;               // this rank is in the mesh; else no part
  // What the call contributes to the lineage of its outputs: the operator, its
  // arguments, and the specs of its inputs.
  uint64_t lineage = 0;

  // The inputs that are not where they are needed, how they get there, all in
  // one go, and the bytes that this takes.
  std::vector<size_t> moved;
  std::vector<Move> moves;
  bool communicates = false;
  int64_t bytes = 0;

  // A decision belongs to one rank, which keeps with it what else it needs at
  // every call. Each is made when it is first needed.
  struct Memo {
    virtual ~Memo() = default;
  };
  mutable std::shared_ptr<const Execution> execution;  // of `moves`
  mutable std::vector<std::shared_ptr<InnerExchange>> inner;
  mutable std::shared_ptr<Memo> memo;  // of the operator's own
};

// What apply() decides for such inputs: by op, specs, what may move, and the
// arguments that decide; remembered by the rank (REQUIRES: an operator lives as
// long as the process). Sends nothing. With `assignment`, that is taken,
// unless it would move an input that stays where it is. Valid for as long as
// the caller holds it.
std::shared_ptr<const Decision> decide(const Op&,
                                       std::span<const OpInput> inputs,
                                       const Attrs& = {},
                                       const Assignment* assignment = nullptr);

// How this rank's decisions were found again.
CacheUse decision_use(RankContext&);

}  // namespace dtensor
