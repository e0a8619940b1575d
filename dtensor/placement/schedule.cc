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

// All that does not depend on who serves.
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

}  // namespace

int64_t Schedule::received() const {
  int64_t n = 0;
  for (const Piece& piece : pieces) {
    const auto others =
        std::count_if(piece.members.begin(), piece.members.end(),
                      [&](int m) { return m != self; });
    n += volume(piece.region) * others;
  }
  return n;
}

Schedule exchange_schedule(const Region& wants, std::span<const Region> sources,
                           int self, std::span<const int> order,
                           std::string_view where) {
  Schedule s = begin(wants, sources, self);
  std::vector<Region> wanted;
  if (!empty(s.wants.ascending())) wanted.push_back(s.wants.ascending());
  auto take = [&](int m) {
    const Region& has = s.has[static_cast<size_t>(m)].ascending();
    std::vector<Region> next;
    for (Region& w : wanted) {
      Region both = intersect(w, has);
      if (empty(both)) {
        next.push_back(std::move(w));
        continue;
      }
      for (Region& rest : subtract(w, has)) next.push_back(std::move(rest));
      s.pieces.push_back({std::move(both), {m}});
    }
    wanted = std::move(next);
  };
  const int p = static_cast<int>(sources.size());
  take(self);
  for (size_t i = 0; i < order.size() && !wanted.empty(); ++i) take(order[i]);
  for (int i = 1; i < p && !wanted.empty() && order.empty(); ++i)
    take((self + i) % p);
  DT_CHECK(wanted.empty(), where,
           "member {} needs {}, which none of the {} members has", self,
           wanted.empty() ? "" : first_box(wanted[0]), p);
  return s;
}

Schedule reduce_schedule(const Region& wants, std::span<const Region> sources,
                         int self) {
  Schedule s = begin(wants, sources, self);
  if (!empty(s.wants.ascending()))
    s.pieces.push_back({s.wants.ascending(), {}});
  for (size_t m = 0; m < s.has.size(); ++m) {
    const Region& has = s.has[m].ascending();
    std::vector<Piece> next;
    for (Piece& piece : s.pieces) {
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
    s.pieces = std::move(next);
  }
  return s;
}

}  // namespace dtensor
