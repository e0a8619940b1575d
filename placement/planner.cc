// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/planner.h"

namespace dtensor {
namespace {

// About the bytes of a plan in a cache, with its key and the map's overhead.
size_t footprint(const Plan& p) {
  return sizeof(Plan) + p.steps.size() * sizeof(Step) + 64;
}

}  // namespace

const Plan& Planner::keep(const Move& key, Plan made) {
  made.steps.shrink_to_fit();
  const size_t bytes = footprint(made);
  return plans_.insert(key, std::move(made), bytes);
}

const Plan& Planner::plan(const Spec* from, const Spec* to) {
  const Move key{from, to};
  if (const Plan* known = plans_.find(key)) return *known;
  return keep(key, dtensor::plan(from, to, cost_));
}

const Plan* Planner::quick_plan(const Spec* from, const Spec* to,
                                int64_t& least_ps) {
  const Move key{from, to};
  const Plan* known = plans_.find(key);
  if (!known) {
    QuickPlan quick = dtensor::quick_plan(from, to, cost_);
    least_ps = quick.least_ps;
    if (!quick.plan) return nullptr;
    known = &keep(key, std::move(*quick.plan));
  }
  least_ps = known->time_ps;
  return known;
}

const Plan& Planner::plan(std::span<const Move> moves) {
  if (const Plan* known = lists_.find(moves)) return *known;
  Plan made = dtensor::plan(moves, cost_);
  const size_t bytes = footprint(made) + moves.size_bytes();
  return lists_.insert({moves.begin(), moves.end()}, std::move(made), bytes);
}

}  // namespace dtensor
