// What a plan sends and costs, as text and JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dtensor/placement/plan.h"

namespace dtensor::report {

// What one rank of the run gets from another, or from itself, in a step.
struct Flow {
  int64_t from, to, bytes;
};

// More ranks than this and nobody is asked what each sends to each.
inline constexpr int64_t kMostFlowRanks = 1024;
// More ranks than this, counted on both meshes, and they are not listed.
inline constexpr int64_t kMostListedRanks = 1 << 20;

struct PlanReport {
  const Spec *from = nullptr, *to = nullptr;
  Plan plan;
  // Those of the run that are in either mesh, ascending; empty when too many.
  std::vector<int64_t> ranks;
  std::vector<int64_t> step_ps;  // by step, of all chunks together
  // By step, in the order of the receivers; without `has_flows` empty.
  std::vector<std::vector<Flow>> flows;
  bool has_flows = false;
  // The sum over the steps of the most that one rank sends.
  std::optional<int64_t> bytes_sent;  // without flows not known
  std::optional<int64_t> lower_bound;
  double planning_us = 0;  // the median of plans made anew
  std::string prices;      // under which it is the cheapest
};

// Plans, several times. Throws Error when there is no plan.
PlanReport plan_report(const Spec* from, const Spec* to, const CostTable&);

// "1.00 times the lower bound": "" without one.
std::string ratio_to_bound(const PlanReport&);

std::string to_text(const PlanReport&);
nlohmann::ordered_json to_json(const PlanReport&);

}  // namespace dtensor::report
