// SPDX-License-Identifier: Apache-2.0
// The decision for a call of an operator: the layouts that it computes on, and
// what follows from them. decide() tells which calls share one.
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

// The choice of layouts, and what follows from it on every rank.
struct CommonDecision : Choice {
  std::optional<BoundRule> rule;  // none if OpFacts::has_rule is false
  // A hash of the operator, of the arguments that affect decisions, and of the
  // inputs' specs. It is part of the outputs' lineage (lineage.h).
  uint64_t lineage = 0;

  std::vector<size_t> moved;  // indices of the inputs that have to move
  std::vector<Move> moves;    // their moves, which are made together
  bool communicates = false;  // whether the moves send anything
  int64_t bytes = 0;          // Plan::bytes of the moves
};

// A decision belongs to one rank.
struct Decision : CommonDecision {
  std::vector<Shape> out_local;  // shapes of this rank's parts of the outputs
  bool here = true;              // false on ranks outside of the mesh

  // The members below are cached with the decision. Each is made when it is
  // first needed.
  struct Memo {
    virtual ~Memo() = default;
  };
  mutable std::shared_ptr<const Execution> execution;  // of `moves`
  // The collectives inside compute() (compute.h), in order.
  mutable std::vector<std::shared_ptr<InnerExchange>> inner;
  mutable std::shared_ptr<Memo> memo;  // for the operator's own use
};

// Returns the decision of apply() for a call with these inputs. It depends on
// the operator, on the specs of the inputs and how they may move
// (placement/keep.h), on the arguments that affect decisions, and on whether a
// gradient may follow (see choose()). Each rank caches it, and takes the common
// part from another rank of its process that has made it. Sends nothing. An
// operator with a rule uses `assignment`, if it is given, unless it would move
// an input that must stay. The decision stays valid while the caller holds it.
// REQUIRES: the operator lives as long as the process.
std::shared_ptr<const Decision> decide(const Op&,
                                       std::span<const OpInput> inputs,
                                       const Attrs& = {},
                                       const Assignment* assignment = nullptr);

// Hits and misses of this rank's cache of decisions.
CacheUse decision_use(RankContext&);

}  // namespace dtensor
