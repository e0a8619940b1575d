// What one member of a collective reads from whom.
//
// A schedule is made from global metadata alone, before anything is sent, and
// each member makes its own: the indices that it wants, cut by who has them.
// It knows no memory; a communicator turns its pieces into boxes of memory.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/region.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

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
  // What other members take from this one, each piece by all that it names; by
  // comes_first(). Filled for communicators that send. The pieces of the taker
  // that name this member are the same ones.
  std::vector<Piece> serves;
  int64_t held = 0;   // elements that this member has to show
  int64_t terms = 1;  // what the average of a reduction divides by
  uint64_t hash = 0;  // of what the members hold: equal on all
  // Elements that come from other members.
  int64_t received() const;
};

// Every index comes from one member: from `self` where it has it, else from the
// first of self + 1, self + 2, ... (cyclically) that has it. Throws Error,
// headed by `where`, when nobody has some index.
Schedule exchange_schedule(const Region& wants, std::span<const Region> sources,
                           int self, std::string_view where);

// Every index comes from all members that have it; a piece that nobody has has
// no members. An average is over all members.
Schedule reduce_schedule(const Region& wants, std::span<const Region> sources,
                         int self);

// A piece of an exchange as a box of local memory: where it begins in what is
// wanted, and in what the member holds.
struct SourceBox {
  int member;
  Shape at, from, shape;
};
// Of all pieces, in the order of where they begin, the same on all members that
// want the same; nullopt when one has several ranges of a dimension.
std::optional<std::vector<SourceBox>> source_boxes(const Schedule&);

// Fill `serves` of a schedule made so, when every member m makes its own of
// wants[m] and the same sources.
void serve_exchange(Schedule&, std::span<const Region> wants);
void serve_reduction(Schedule&, std::span<const Region> wants);

// Adds to `serves` (in no order) what `member` takes, and brings it into order.
void add_served(Schedule&, const Region& taken, int member);
void sort_served(Schedule&);

}  // namespace dtensor
