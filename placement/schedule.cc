// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/schedule.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

std::string first_box(const Region& region) {
  std::string text;
  for (const IntervalList& list : region)
    text += fmt::format("{}[{}, {})", text.empty() ? "" : " x ", list[0].lo,
                        list[0].hi);
  return text.empty() ? "the scalar" : text;
}

// Makes a schedule with all fields that do not depend on the pieces.
Schedule begin(const Region& wants, std::span<const Region> sources, int self) {
  Schedule s;
  s.self = self;
  s.wants = HeldRegion(wants);
  s.has.reserve(sources.size());
  s.hash = sources.size();
  for (const Region& r : sources) {
    s.has.emplace_back(r);
    s.hash = hash_of(s.hash, r);
  }
  s.held = volume(sources[static_cast<size_t>(self)]);
  s.terms = static_cast<int64_t>(sources.size());
  return s;
}

// The pieces that member `self` takes. `left` becomes the part that no member
// has.
std::vector<Piece> exchange_pieces(const Region& wants,
                                   std::span<const HeldRegion> held, int self,
                                   std::vector<Region>& left) {
  std::vector<Piece> pieces;
  left.clear();
  if (!empty(wants)) left.push_back(wants);
  const int p = static_cast<int>(held.size());
  for (int i = 0; i < p && !left.empty(); ++i) {
    const int m = (self + i) % p;
    const Region& has = held[static_cast<size_t>(m)].ascending();
    std::vector<Region> next;
    for (Region& w : left) {
      Region both = intersect(w, has);
      if (empty(both)) {
        next.push_back(std::move(w));
        continue;
      }
      for (Region& rest : subtract(w, has)) next.push_back(std::move(rest));
      pieces.push_back({std::move(both), {m}});
    }
    left = std::move(next);
  }
  return pieces;
}

std::vector<Piece> reduce_pieces(const Region& wants,
                                 std::span<const HeldRegion> held) {
  std::vector<Piece> pieces;
  if (!empty(wants)) pieces.push_back({wants, {}});
  for (size_t m = 0; m < held.size(); ++m) {
    const Region& has = held[m].ascending();
    std::vector<Piece> next;
    for (Piece& piece : pieces) {
      Region both = intersect(piece.region, has);
      if (empty(both)) {
        next.push_back(std::move(piece));
        continue;
      }
      for (Region& rest : subtract(piece.region, has))
        next.push_back({std::move(rest), piece.members});
      piece.members.push_back(static_cast<int>(m));
      next.push_back({std::move(both), std::move(piece.members)});
    }
    pieces = std::move(next);
  }
  return pieces;
}

// Fills `serves` from pieces_of(wants, member) of every other member that may
// take something.
template <class PiecesOf>
void serve(Schedule& s, std::span<const Region> wants, PiecesOf&& pieces_of) {
  s.serves.clear();
  const Region& mine = s.has[static_cast<size_t>(s.self)].ascending();
  for (size_t m = 0; m < wants.size(); ++m) {
    if (static_cast<int>(m) == s.self || overlap(wants[m], mine) == 0) continue;
    const HeldRegion wanted(wants[m]);
    for (const Piece& piece :
         pieces_of(wanted.ascending(), static_cast<int>(m)))
      if (std::binary_search(piece.members.begin(), piece.members.end(),
                             s.self))
        add_served(s, piece.region, static_cast<int>(m));
  }
  sort_served(s);
}

}  // namespace

Schedule exchange_schedule(const Region& wants, std::span<const Region> sources,
                           int self, std::string_view where) {
  Schedule s = begin(wants, sources, self);
  std::vector<Region> left;
  s.pieces = exchange_pieces(s.wants.ascending(), s.has, self, left);
  DT_CHECK(left.empty(), where,
           "member {} needs {}, but none of the {} members has it, which is an "
           "error in dtensor; report it",
           self, left.empty() ? "" : first_box(left[0]), sources.size());
  return s;
}

Schedule reduce_schedule(const Region& wants, std::span<const Region> sources,
                         int self) {
  Schedule s = begin(wants, sources, self);
  s.pieces = reduce_pieces(s.wants.ascending(), s.has);
  return s;
}

void serve_exchange(Schedule& s, std::span<const Region> wants) {
  std::vector<Region> left;
  serve(s, wants, [&](const Region& wanted, int m) {
    return exchange_pieces(wanted, s.has, m, left);
  });
}

void serve_reduction(Schedule& s, std::span<const Region> wants) {
  serve(s, wants, [&](const Region& wanted, int) {
    return reduce_pieces(wanted, s.has);
  });
}

void add_served(Schedule& s, const Region& taken, int member) {
  s.serves.push_back({taken, {member}});
}

void sort_served(Schedule& s) {
  std::stable_sort(s.serves.begin(), s.serves.end(),
                   [](const Piece& a, const Piece& b) {
                     return comes_first(a.region, b.region);
                   });
  // Merge equal pieces into one with all members.
  size_t kept = 0;
  for (size_t i = 1; i < s.serves.size(); ++i) {
    if (s.serves[i].region == s.serves[kept].region)
      s.serves[kept].members.push_back(s.serves[i].members[0]);
    else if (++kept != i)
      s.serves[kept] = std::move(s.serves[i]);
  }
  if (!s.serves.empty()) s.serves.resize(kept + 1);
}

}  // namespace dtensor
