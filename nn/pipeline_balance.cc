// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/pipeline_balance.h"

#include <algorithm>
#include <limits>

#include "dtensor/placement/error.h"

namespace dtensor::nn {

std::vector<int64_t> balanced_stages(std::span<const double> costs,
                                     int64_t stages) {
  const size_t n = costs.size();
  DT_CHECK(stages >= 1 && stages <= static_cast<int64_t>(n), "pipeline",
           "the number of layers is {} and that of stages {}; write at least 1 "
           "stage, and at least as many layers as stages",
           n, stages);
  for (size_t i = 0; i < n; ++i)
    DT_CHECK(costs[i] >= 0, "pipeline",
             "layer {} costs {}; write 0 or more for each", i, costs[i]);
  // best[k][i] is the best cut of the layers from i on into k + 1 stages: the
  // cost of the most expensive stage, and the end of the first one.
  const auto all = static_cast<size_t>(stages);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Cut {
    double dearest = kNever;
    size_t end = 0;
  };
  std::vector<std::vector<Cut>> best(all, std::vector<Cut>(n));
  for (size_t i = n; i-- > 0;)
    best[0][i] = {costs[i] + (i + 1 < n ? best[0][i + 1].dearest : 0), n};
  for (size_t k = 1; k < all; ++k)
    for (size_t i = 0; i + k < n; ++i) {
      double first = 0;
      for (size_t end = i + 1; end + k <= n; ++end) {
        first += costs[end - 1];
        const double dearest = std::max(first, best[k - 1][end].dearest);
        if (dearest <= best[k][i].dearest) best[k][i] = {dearest, end};
      }
    }
  std::vector<int64_t> starts;
  size_t at = 0;
  for (size_t k = all; k-- > 0;) {
    starts.push_back(static_cast<int64_t>(at));
    at = best[k][at].end;
  }
  starts.push_back(static_cast<int64_t>(n));
  return starts;
}

}  // namespace dtensor::nn
