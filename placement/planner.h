// SPDX-License-Identifier: Apache-2.0
// A cache of plans under one cost table.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/cost.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/shared_cache.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

struct MoveHash {
  size_t operator()(const Move& m) const {
    return hash_mix(reinterpret_cast<uint64_t>(m.from.get()),
                    reinterpret_cast<uint64_t>(m.to.get()));
  }
};

// For a BoundedCache with lists of moves as keys: find() takes a span, so that
// no list is copied for a look-up.
struct MovesHash {
  using is_transparent = void;
  size_t operator()(std::span<const Move> moves) const {
    uint64_t h = moves.size();
    for (const Move& m : moves) h = hash_mix(h, MoveHash()(m));
    return h;
  }
};
struct SameMoves {
  using is_transparent = void;
  bool operator()(std::span<const Move> a, std::span<const Move> b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
};

// Plans that planners with the same cost table share. Thread-safe.
struct SharedPlans {
  SharedCache<Move, Plan, MoveHash> plans{"shared plans",
                                          cache_limit::kPlanBytes};
  SharedCache<std::vector<Move>, Plan, MovesHash, SameMoves> lists{
      "shared plans of several tensors", cache_limit::kListPlanBytes};
};

// Each thread that plans has one Planner. Not thread-safe.
class Planner {
 public:
  // If `shared` is given, plan() takes plans from `shared`, and adds those that
  // it had to make. REQUIRES: all planners of `shared` have the same cost
  // table.
  explicit Planner(CostTable cost = {},
                   std::shared_ptr<SharedPlans> shared = nullptr)
      : cost_(std::move(cost)), shared_(std::move(shared)) {}
  // A planner with an empty cache of its own, and the same `cost` and `shared`.
  Planner for_another_thread() const { return Planner(cost_, shared_); }
  const CostTable& cost() const { return cost_; }
  // The plan for one tensor. References stay valid until many other plans have
  // been made (see bounded_cache.h).
  const Plan& plan(const Spec* from, const Spec* to);
  // The plan, if this planner has it or finds it without a search; else null.
  // `least_ps` becomes a lower bound of the time of any plan.
  const Plan* quick_plan(const Spec* from, const Spec* to, int64_t& least_ps);
  // The plan for tensors that move together.
  const Plan& plan(std::span<const Move>);
  CacheUse plan_use() const { return plans_.use(); }
  CacheUse list_use() const { return lists_.use(); }

 private:
  const Plan& keep(const Move&, std::shared_ptr<const Plan>);
  CostTable cost_;
  std::shared_ptr<SharedPlans> shared_;  // null: none
  BoundedCache<Move, std::shared_ptr<const Plan>, MoveHash> plans_{
      "plans", cache_limit::kPlanBytes};
  BoundedCache<std::vector<Move>, std::shared_ptr<const Plan>, MovesHash,
               SameMoves>
      lists_{"plans of several tensors", cache_limit::kListPlanBytes};
};

}  // namespace dtensor
