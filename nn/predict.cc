// SPDX-License-Identifier: Apache-2.0
// The prediction of a training step for the ranks that have most to do.
#include <algorithm>
#include <map>
#include <utility>

#include "dtensor/comm_table.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/step_checks.h"
#include "dtensor/nn/trainer.h"
#include "dtensor/rank_context.h"
#include "dtensor/runtime.h"

namespace dtensor::nn {

// The rank with the largest part of a batch, for each position along pp. Of
// ranks with equally large parts, the last. (In zig-zag order, the last rank
// does not always have the most items of a sequence.)
static std::vector<int64_t> largest_ranks(const Mesh& mesh,
                                          const Shape& inputs) {
  const Layout windows = inputs.size() == 2
                             ? batch_layout(mesh, inputs)
                             : batch_placements(mesh).resolve(mesh, inputs);
  struct Largest {
    int64_t items = -1, rank = 0;
  };
  std::map<int64_t, Largest> at;  // by position
  const int stages = axis_that(kSplitsStages, mesh);
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    const Coord c = mesh.coordinate(r);
    const int64_t place = stages < 0 ? 0 : c[stages];
    IntervalList items;
    windows.dims[inputs.size() - 1].intervals(mesh, c, items);
    if (const int64_t n = length(items); n >= at[place].items)
      at[place] = {n, mesh.world_rank(r)};
  }
  std::vector<int64_t> ranks;
  for (const auto& [place, largest] : at) ranks.push_back(largest.rank);
  return ranks;
}

Prediction predict(const RunOptions& options, const Shape& inputs,
                   const std::function<Prediction(Runtime&)>& on_rank) {
  RunOptions dry = options;
  dry.dry_run = true;
  const Mesh mesh = options.mesh.empty() ? Mesh({{"ranks", options.world}})
                                         : Mesh::parse(options.mesh);
  Prediction all;
  std::vector<Totals> totals;
  for (const int64_t rank : largest_ranks(mesh, inputs))
    run(dry, [&](Runtime& rt) {
      rt.context().world_rank = rank;
      Prediction p = on_rank(rt);
      all.parameter_bytes = std::max(all.parameter_bytes, p.parameter_bytes);
      all.parameters = p.parameters;
      totals.push_back(std::move(p));
    });
  static_cast<Totals&>(all) = merge(totals);
  return all;
}

void check_agreement(const Prediction& predicted, const TrainingReport& ran) {
  check_agreement(comm_rows(predicted.events), comm_rows(ran.events));
}

}  // namespace dtensor::nn
