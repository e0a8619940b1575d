#include "examples/step_time.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dtensor/program/comm_table.h"

namespace dtensor::examples {

double typical(std::vector<double> s) {
  if (s.size() > 2) s.erase(s.begin(), s.begin() + 2);
  std::sort(s.begin(), s.end());
  const size_t half = s.size() / 2;
  return s.size() % 2 ? s[half] : (s[half - 1] + s[half]) / 2;
}

double tokens_per_second(std::vector<double> step_seconds, int64_t tokens) {
  return static_cast<double>(tokens) / typical(std::move(step_seconds));
}

namespace {

int64_t time_of_rank(std::span<const CommEvent> events, const CostTable& cost) {
  int64_t ps = 0;
  std::set<int64_t> paid;
  for (const CommEvent& e : events) {
    const bool first = !e.collective || paid.insert(e.collective).second;
    // Transfers between meshes are priced like collectives over all axes.
    const AxisMask axes = e.axes ? e.axes : e.mesh.all_axes();
    ps += cost.collective_ps(e.kind, axes, e.predicted) +
          cost.link(e.kind, axes).alpha_ps * (first ? e.times - 1 : -1);
  }
  return ps;
}

}  // namespace

int64_t communication_ps(std::span<const CommEvent> merged,
                         const CostTable& cost) {
  int64_t most = 0;
  for (const std::vector<CommEvent>& list : events_by_rank(merged))
    most = std::max(most, time_of_rank(list, cost));
  return most;
}

}  // namespace dtensor::examples
