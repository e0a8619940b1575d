// SPDX-License-Identifier: Apache-2.0
#include "tests/placement/traffic.h"

#include <algorithm>

#include "dtensor/placement/step_schedule.h"

namespace dtensor::testing {

std::vector<Traffic> group_traffic(const Step& step, int64_t world_rank) {
  if (!sends(step.kind)) return {};
  const std::vector<int64_t> ranks = members(step, world_rank);
  const int64_t p = static_cast<int64_t>(ranks.size());
  std::vector<Traffic> traffic(ranks.size());
  const int64_t item = size_of(step.from->dtype());
  for (int64_t m = 0; m < p; ++m) {
    Traffic& mine = traffic[static_cast<size_t>(m)];
    if (step.kind == StepKind::kAllReduce) {
      const Mesh& mesh = step.from->mesh();
      const Coord at =
          mesh.coordinate(mesh.mesh_rank_of(ranks[static_cast<size_t>(m)]));
      const int64_t n = numel(step.from->local_shape(at));
      const int64_t own = (m + 1) * n / p - m * n / p;
      mine.sent = mine.received = ((p - 1) * own + n - own) * item;
      continue;
    }
    const Schedule s = schedule(step, ranks[static_cast<size_t>(m)]);
    for (const Piece& piece : s.pieces) {
      const int64_t bytes = volume(piece.region) * item;
      for (int from : piece.members) {
        if (from == m) continue;
        mine.received += bytes;
        traffic[static_cast<size_t>(from)].sent += bytes;
      }
    }
  }
  return traffic;
}

Traffic traffic(const Step& step, int64_t world_rank) {
  const std::vector<int64_t> ranks = members(step, world_rank);
  const auto it = std::find(ranks.begin(), ranks.end(), world_rank);
  if (!sends(step.kind) || it == ranks.end()) return {};
  return group_traffic(step,
                       world_rank)[static_cast<size_t>(it - ranks.begin())];
}

int64_t received(const Schedule& s) {
  int64_t n = 0;
  for (const Piece& piece : s.pieces)
    for (int m : piece.members) n += m == s.self ? 0 : volume(piece.region);
  return n;
}

}  // namespace dtensor::testing
