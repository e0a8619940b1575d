// What one member of a collective reads from whom.
//
// A schedule is made from global metadata alone, before anything is sent, and
// each member makes its own: the indices that it wants, cut by who has them.
// It knows no memory; a communicator turns its pieces into boxes of memory.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/plan.h"

namespace dtensor {

// A region whose lists ascend, and, per range, where it starts in the list that
// the local memory follows.
class HeldRegion {
 public:
  HeldRegion() = default;
  explicit HeldRegion(Region);
  const Region& ascending() const { return ranges_; }
  // Empty when the memory follows the ascending list: then each range starts
  // where the one before it ends.
  std::span<const int64_t> starts(size_t dim) const {
    return starts_.empty() ? std::span<const int64_t>() : starts_[dim];
  }

 private:
  Region ranges_;
  std::vector<std::vector<int64_t>> starts_;
};

// A part of what is wanted that lies in the same members' sources throughout.
struct Piece {
  Region region;             // ascending
  std::vector<int> members;  // ascending; of an exchange exactly one
};

struct Schedule {
  int self = 0;      // this member's index in the group
  HeldRegion wants;  // what it will hold
  // What each member holds of which some piece names it; of others nothing is
  // said.
  std::vector<HeldRegion> has;
  std::vector<Piece> pieces;  // disjoint, together `wants`
  int64_t held = 0;           // elements that this member has to show
  int64_t terms = 1;          // what the average of a reduction divides by
  uint64_t hash = 0;          // of what the members hold: equal on all
  // Elements that come from other members.
  int64_t received() const;
};

// Every index comes from one member: from `self` where it has it, else from the
// first in `order` that has it (empty: self + 1, self + 2, ... cyclically).
// Throws Error, headed by `where`, when nobody has some index.
Schedule exchange_schedule(const Region& wants, std::span<const Region> sources,
                           int self, std::span<const int> order,
                           std::string_view where);

// Every index comes from all members that have it; a piece that nobody has has
// no members. An average is over all members.
Schedule reduce_schedule(const Region& wants, std::span<const Region> sources,
                         int self);

// The ranks of the run that take part in a step together with `world_rank`:
// those that differ from it in step.axes alone, row-major; between two meshes
// the ranks of either, ascending. Empty when it takes no part.
std::vector<int64_t> members(const Step&, int64_t world_rank);

// The schedule of a step that sends (not of an all-reduce) for a rank that
// takes part, of the indices inside `panel` alone (one ascending list per
// dimension; empty: all): sources and destination are then what lies inside.
// Costs time in the order of the members that it reads from, plus, for each
// dimension, of the parts that the group's axes cut it into.
//
// Where several members have what a rank needs, the nearest by axis price
// serve: the plan leaves dearer axes out of step.axes. Of those left, this rank
// itself; else the receivers of one index take turns among those that hold it,
// starting at another one for other indices, so that all send alike. Each term
// of a reduction comes from one member. `terms` is the number of parts that
// the step combines. (sum, count) pairs have one more, leading dimension of 2,
// also in the panel.
Schedule schedule(const Step&, int64_t world_rank, const Region& panel = {});

// What one rank sends and receives in a step (bytes), exactly.
struct Traffic {
  int64_t sent = 0, received = 0;
  bool operator==(const Traffic&) const = default;
};
// Of every member of the rank's group, in their order; empty for a step that
// sends nothing. Costs every member's schedule.
std::vector<Traffic> group_traffic(const Step&, int64_t world_rank);
Traffic traffic(const Step&, int64_t world_rank);

}  // namespace dtensor
