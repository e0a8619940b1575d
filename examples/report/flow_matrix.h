// Who sends whom how much in a step: a row and a column per group of ranks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "examples/report/plan_report.h"
#include "examples/report/rank_groups.h"
#include "examples/report/svg.h"

namespace dtensor::report {

struct FlowSums {
  std::vector<int64_t> bytes;  // from row to column; a group by itself:
                               // between its ranks
  std::vector<int64_t> kept;   // by group: from a rank to itself
  std::vector<int64_t> sent, received;  // by group
  int64_t most = 0;                     // of `bytes`
  int64_t most_sum = 0;                 // of `sent` and `received`
};
FlowSums sum_flows(std::span<const Flow>, const RankGroups&);

struct FlowMatrix {
  double bottom;  // where it ends
  bool keeps;     // something is hatched: what ranks keep
};
FlowMatrix draw_flow_matrix(Svg&, double x, double y, std::span<const Flow>,
                            const RankGroups&);

}  // namespace dtensor::report
