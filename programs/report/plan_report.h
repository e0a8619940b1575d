// SPDX-License-Identifier: Apache-2.0
// Reports the communication and cost of a plan, as text and JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor::report {

// The bytes that one rank of the run receives from another in a step; or, if
// `from` is `to`, the bytes that it keeps.
struct Flow {
  int64_t from, to, bytes;
};

// PlanReport::flows are not computed for more ranks than this.
inline constexpr int64_t kMostFlowRanks = 1024;
// PlanReport::ranks are not listed if the two meshes' sizes add up to more.
inline constexpr int64_t kMostListedRanks = 1 << 20;

struct PlanReport {
  const Spec *from = nullptr, *to = nullptr;
  Plan plan;
  // The ranks of the run that are in either mesh, ascending; empty if the
  // meshes are too large (kMostListedRanks).
  std::vector<int64_t> ranks;
  std::vector<int64_t> step_ps;  // by step, for all chunks of the plan together
  // By step, ordered by receiver; empty unless `has_flows`.
  std::vector<std::vector<Flow>> flows;
  bool has_flows = false;
  // The most bytes that one rank sends in a step, summed over the steps.
  std::optional<int64_t> bytes_sent;  // nullopt unless `has_flows`
  std::optional<int64_t> lower_bound;
  double planning_us = 0;  // the median time of plan()
  std::string prices;      // the prices that the plan's time comes from
};

// Plans the redistribution, several times to measure how long planning takes.
// Throws Error if there is no plan.
PlanReport plan_report(const Spec* from, const Spec* to, const CostTable&);

// "1.25 times the lower bound", "exactly the lower bound" or "the lower bound
// is 0"; "" if there is no lower bound.
std::string ratio_to_bound(const PlanReport&);

std::string to_text(const PlanReport&);
nlohmann::ordered_json to_json(const PlanReport&);

}  // namespace dtensor::report
