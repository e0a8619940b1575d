// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/named_cost.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace dtensor {
namespace {

struct Node {
  std::string_view name;
  double memory_gbytes_per_s;
};
constexpr Node kNodes[] = {{"h100", 3350}, {"h200", 4800}};

constexpr int64_t kPerNode = 8;
constexpr double kTflops = 780, kNvlink = 360, kSwitches = 476, kCard = 47;
constexpr double kBaseUs = 6.6, kStepUs = 0.6, kNodeStepUs = 2.7;

LinkCost link(double us, double gbytes_per_s) {
  return {std::llround(us * 1e6), 1000 / gbytes_per_s};
}

// The prices of collectives among the ranks that differ only in `axes`.
AxisCost group_cost(const Mesh& mesh, AxisMask axes) {
  // Only the first group is looked at. If groups lie differently on the nodes,
  // the other groups may cost more or less.
  std::set<int64_t> nodes;
  const std::vector<int64_t> ranks = mesh.group(axes, Coord{});
  for (int64_t r : ranks) nodes.insert(mesh.world_rank(r) / kPerNode);
  const double n = static_cast<double>(nodes.size()),
               p = static_cast<double>(ranks.size());
  const double rate = n > 1 ? std::min(kNvlink, kCard * p / n) : kNvlink;
  const double ring = (p - n) * kStepUs + (n - 1) * kNodeStepUs;
  const double one = n > 1 ? kNodeStepUs : kStepUs;

  AxisCost cost;
  static_cast<LinkCost&>(cost) = link(kBaseUs + one, rate);
  const auto set = [&](StepKind k, const LinkCost& own) {
    cost.kinds[static_cast<size_t>(k)] = own;
  };
  set(StepKind::kAllGather, link(kBaseUs + ring, rate));
  set(StepKind::kReduceScatter, link(kBaseUs + ring, rate));
  set(StepKind::kAllReduce,
      link(kBaseUs + 2 * ring,
           n == 1 && ranks.size() == kPerNode ? kSwitches : rate));
  return cost;
}

}  // namespace

std::optional<CostTable> named_cost(std::string_view name, const Mesh& mesh) {
  const auto node = std::find_if(std::begin(kNodes), std::end(kNodes),
                                 [&](const Node& x) { return x.name == name; });
  if (node == std::end(kNodes)) return std::nullopt;
  CostTable table;
  table.ps_per_flop = 1 / kTflops;
  table.ps_per_local_byte = 1000 / node->memory_gbytes_per_s;
  for (int a = 0; a < mesh.num_axes(); ++a)
    table.axes.push_back(group_cost(mesh, AxisMask{1} << a));
  for (AxisMask axes = 1; axes <= mesh.all_axes(); ++axes)
    if (axes & (axes - 1))  // two or more axes
      table.groups.push_back({axes, group_cost(mesh, axes)});
  return table;
}

std::string cost_names() {
  std::string text;
  for (const Node& node : kNodes)
    text.append(text.empty() ? "" : ", ").append(node.name);
  return text;
}

}  // namespace dtensor
