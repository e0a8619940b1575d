// Plans under one cost table, remembered.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dtensor/placement/bounded_cache.h"
#include "dtensor/placement/cost.h"
#include "dtensor/placement/hash.h"
#include "dtensor/placement/plan.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

struct MoveHash {
  size_t operator()(const Move& m) const {
    return hash_mix(reinterpret_cast<uint64_t>(m.from),
                    reinterpret_cast<uint64_t>(m.to));
  }
};

// For a BoundedCache whose keys are moves that belong together; a list of them
// is looked up without a copy.
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

// One per rank; not thread-safe.
class Planner {
 public:
  explicit Planner(CostTable cost = {}) : cost_(std::move(cost)) {}
  const CostTable& cost() const { return cost_; }
  // References stay valid until many other plans have been made (see
  // bounded_cache.h).
  const Plan& plan(const Spec* from, const Spec* to);
  // The plan if it is known or quickly found, else null and in `least_ps` a
  // time that no plan is below.
  const Plan* quick_plan(const Spec* from, const Spec* to, int64_t& least_ps);
  // Of tensors that move together.
  const Plan& plan(std::span<const Move>);
  CacheUse plan_use() const { return plans_.use(); }
  CacheUse list_use() const { return lists_.use(); }

 private:
  const Plan& keep(const Move&, Plan);
  CostTable cost_;
  BoundedCache<Move, Plan, MoveHash> plans_{"plans", cache_limit::kPlanBytes};
  BoundedCache<std::vector<Move>, Plan, MovesHash, SameMoves> lists_{
      "plans of several tensors", cache_limit::kListPlanBytes};
};

}  // namespace dtensor
