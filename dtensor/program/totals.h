// What ranks send, hold and compute in all. The tables of --json and those of a
// record are made of it.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dtensor/allocator.h"
#include "dtensor/comm_event.h"
#include "dtensor/memory_kind.h"

namespace dtensor {

// The most bytes that a rank holds: of each MemoryKind, and of all kinds
// together. (The maxima need not occur at the same time.)
struct MemoryUse {
  std::array<int64_t, kMemoryKinds> kinds = {};
  int64_t peak = 0;
};
MemoryUse memory_use(const Allocator::Stats&);

struct Totals {
  std::vector<CommEvent> events;
  MemoryUse memory = {};
  int64_t work_ps = 0;  // of a rank's operators, by their prices
};

// The totals of several ranks together: their events, merged (comm_table.h),
// and the largest of each other number.
Totals merge(std::span<const Totals> ranks);
// Those of all ranks of the run, on every rank. Collective over them. In a dry
// run, only the caller's.
Totals merge(const Totals& mine);

}  // namespace dtensor
