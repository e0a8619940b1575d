// SPDX-License-Identifier: Apache-2.0
// The schedule of one member of a collective: the pieces that it reads, and the
// members that have them.
//
// A schedule is made from global metadata alone, before anything is sent. Each
// member makes its own: it cuts the indices that it wants by the members that
// have them. A schedule knows nothing about memory; a communicator turns its
// pieces into boxes of memory.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/region.h"
#include "dtensor/placement/shape.h"

namespace dtensor {

// A part of the wanted indices. The same members have each of these indices.
struct Piece {
  Region region;             // ascending
  std::vector<int> members;  // ascending; exactly one in an exchange
};

struct Schedule {
  int self = 0;      // this member's index in the group
  HeldRegion wants;  // the indices that it will hold
  // The indices that each member has. May be empty for a member that no piece
  // names.
  std::vector<HeldRegion> has;
  std::vector<Piece> pieces;  // disjoint; together they are `wants`
  // The pieces that other members take from this one, in the order of
  // comes_first(). Each piece lists all members that take it, and is one of the
  // pieces in their own schedules. Filled only for communicators that send data
  // instead of reading it.
  std::vector<Piece> serves;
  int64_t held = 0;   // elements that this member holds
  int64_t terms = 1;  // the divisor of an average
  uint64_t hash = 0;  // of the metadata that all members share
};

// Each index comes from one member: from `self` if it has the index, else from
// the first of self + 1, self + 2, ... (cyclically) that has it. Throws Error,
// headed by `where`, if no member has an index.
Schedule exchange_schedule(const Region& wants, std::span<const Region> sources,
                           int self, std::string_view where);

// Each index comes from all members that have it. Piece::members is empty for a
// piece that no member has. An average divides by the number of all members.
Schedule reduce_schedule(const Region& wants, std::span<const Region> sources,
                         int self);

// These fill `serves` of a schedule from exchange_schedule() or
// reduce_schedule(), given the `wants` of all members. REQUIRES: each member m
// made its own schedule from wants[m] and the same sources.
void serve_exchange(Schedule&, std::span<const Region> wants);
void serve_reduction(Schedule&, std::span<const Region> wants);

// add_served() appends to `serves` the region that `member` takes;
// sort_served() then sorts and merges the pieces.
void add_served(Schedule&, const Region& taken, int member);
void sort_served(Schedule&);

}  // namespace dtensor
