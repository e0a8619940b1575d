// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dtensor/all_gather_bytes.h"
#include "dtensor/allocator.h"
#include "dtensor/comm_table.h"

namespace dtensor {
namespace {

// The numbers of one rank's Totals. merge() takes the largest of each.
struct Largest {
  MemoryUse memory;
  int64_t work_ps;
};

void raise(Totals& sum, const Largest& r) {
  for (size_t k = 0; k < kMemoryKinds; ++k)
    sum.memory.kinds[k] = std::max(sum.memory.kinds[k], r.memory.kinds[k]);
  sum.memory.peak = std::max(sum.memory.peak, r.memory.peak);
  sum.memory.host = std::max(sum.memory.host, r.memory.host);
  sum.work_ps = std::max(sum.work_ps, r.work_ps);
}

}  // namespace

MemoryUse memory_use(const Allocator& allocator) {
  const Allocator::Stats stats = allocator.stats();
  MemoryUse use;
  for (size_t k = 0; k < kMemoryKinds; ++k)
    use.kinds[k] = stats.kinds[k].peak_bytes;
  use.peak = stats.peak_bytes;
  use.host = allocator.host_peak();
  return use;
}

Totals merge(std::span<const Totals> ranks) {
  Totals sum;
  std::vector<std::vector<CommEvent>> events;
  for (const Totals& r : ranks) {
    events.push_back(r.events);
    raise(sum, {r.memory, r.work_ps});
  }
  sum.events = merge_events(events);
  return sum;
}

Totals merge(const Totals& mine) {
  Totals sum{.events = merge_events(mine.events)};
  for (const Largest& r :
       all_gather("totals", Largest{mine.memory, mine.work_ps}))
    raise(sum, r);
  return sum;
}

}  // namespace dtensor
