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

// The bytes that one rank of the run receives from another, or keeps, in a
// step.
struct Flow {
  int64_t from, to, bytes;
};

// With more ranks than this, flows are not computed.
inline constexpr int64_t kMostFlowRanks = 1024;
// With more ranks than this, counted on both meshes, ranks are not listed.
inline constexpr int64_t kMostListedRanks = 1 << 20;

struct PlanReport {
  const Spec *from = nullptr, *to = nullptr;
  Plan plan;
  // The ranks of the run that are in either mesh, ascending; empty if there are
  // more than kMostListedRanks.
  std::vector<int64_t> ranks;
  std::vector<int64_t> step_ps;  // by step, for all chunks together
  // By step, in the order of the receivers; empty unless `has_flows`.
  std::vector<std::vector<Flow>> flows;
  bool has_flows = false;
  // The sum over the steps of the most that one rank sends.
  std::optional<int64_t> bytes_sent;  // unknown without flows
  std::optional<int64_t> lower_bound;
  double planning_us = 0;  // the median time of planning
  std::string prices;      // under which the plan is the cheapest
};

// Plans the redistribution, several times to measure planning. Throws Error if
// there is no plan.
PlanReport plan_report(const Spec* from, const Spec* to, const CostTable&);

// "1.00 times the lower bound"; "" if there is no bound.
std::string ratio_to_bound(const PlanReport&);

std::string to_text(const PlanReport&);
nlohmann::ordered_json to_json(const PlanReport&);

}  // namespace dtensor::report
