// SPDX-License-Identifier: Apache-2.0
// Draws the bytes that ranks send to each other in a step, as a matrix: a row
// for each group of senders, and a column for each group of receivers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "programs/report/plan_report.h"
#include "programs/report/rank_groups.h"
#include "programs/report/svg.h"

namespace dtensor::report {

struct FlowSums {
  std::vector<int64_t> bytes;  // [senders' group, receivers' group]; on the
                               // diagonal: between the ranks of one group
  std::vector<int64_t> kept;   // by group: bytes that its ranks keep
  std::vector<int64_t> sent, received;  // by group, without the bytes kept
  int64_t most = 0;                     // the maximum of `bytes`
  int64_t most_sum = 0;                 // the maximum of `sent` and `received`
};
FlowSums sum_flows(std::span<const Flow>, const RankGroups&);

struct FlowMatrix {
  double bottom;  // the y coordinate of the matrix's lower end
  bool keeps;     // whether it has hatched cells, for bytes that ranks keep
};
// Draws the matrix with its upper left corner at x, y.
FlowMatrix draw_flow_matrix(Svg&, double x, double y, std::span<const Flow>,
                            const RankGroups&);

}  // namespace dtensor::report
