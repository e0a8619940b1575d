// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/planner.h"

namespace dtensor {
namespace {

// About the bytes of a plan in a cache, with its key and the map's overhead.
size_t footprint(const Plan& p) {
  return sizeof(Plan) + p.steps.size() * sizeof(Step) + 64;
}

std::shared_ptr<const Plan> compact(Plan made) {
  made.steps.shrink_to_fit();
  return std::make_shared<const Plan>(std::move(made));
}

}  // namespace

const Plan& Planner::keep(const Move& key, std::shared_ptr<const Plan> plan) {
  const size_t bytes = footprint(*plan);
  return *plans_.insert(key, std::move(plan), bytes);
}

const Plan& Planner::plan(const Spec* from, const Spec* to) {
  const Move key{from, to};
  if (const auto* known = plans_.find(key)) return **known;
  if (shared_)
    if (auto known = shared_->plans.find(key)) return keep(key, known);
  auto made = compact(dtensor::plan(from, to, cost_));
  if (shared_) shared_->plans.insert(key, made, footprint(*made));
  return keep(key, std::move(made));
}

const Plan* Planner::quick_plan(const Spec* from, const Spec* to,
                                int64_t& least_ps) {
  const Move key{from, to};
  const auto* found = plans_.find(key);
  const Plan* known = found ? found->get() : nullptr;
  if (!known) {
    QuickPlan quick = dtensor::quick_plan(from, to, cost_);
    least_ps = quick.least_ps;
    if (!quick.plan) return nullptr;
    known = &keep(key, compact(std::move(*quick.plan)));
  }
  least_ps = known->time_ps;
  return known;
}

const Plan& Planner::plan(std::span<const Move> moves) {
  if (const auto* known = lists_.find(moves)) return **known;
  auto made = shared_ ? shared_->lists.find(moves) : nullptr;
  const bool searched = !made;
  if (searched) made = compact(dtensor::plan(moves, cost_));
  const std::vector<Move> key(moves.begin(), moves.end());
  const size_t bytes = footprint(*made) + moves.size_bytes();
  if (searched && shared_) shared_->lists.insert(key, made, bytes);
  return *lists_.insert(key, std::move(made), bytes);
}

}  // namespace dtensor
