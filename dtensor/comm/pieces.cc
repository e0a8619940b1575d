#include "dtensor/comm/pieces.h"

#include <algorithm>
#include <optional>
#include <string>

#include "placement/error.h"

namespace dtensor {
namespace {

// The ranges of a that are in b; both ascend.
IntervalList intersect(const IntervalList& a, const IntervalList& b) {
  IntervalList out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t lo = std::max(a[i].lo, b[j].lo);
    const int64_t hi = std::min(a[i].hi, b[j].hi);
    if (lo < hi) out.push_back({lo, hi});
    if (a[i].hi < b[j].hi)
      ++i;
    else
      ++j;
  }
  return out;
}

// The ranges of a that are not in b; both ascend.
IntervalList subtract(const IntervalList& a, const IntervalList& b) {
  IntervalList out;
  size_t j = 0;
  for (const Interval& r : a) {
    int64_t lo = r.lo;
    while (j < b.size() && b[j].hi <= lo) ++j;
    for (size_t k = j; k < b.size() && b[k].lo < r.hi; ++k) {
      if (lo < b[k].lo) out.push_back({lo, b[k].lo});
      lo = std::max(lo, b[k].hi);
    }
    if (lo < r.hi) out.push_back({lo, r.hi});
  }
  return out;
}

bool empty(const Region& region) {
  return std::any_of(region.begin(), region.end(),
                     [](const IntervalList& list) { return list.empty(); });
}

// What of `a` is in `b`; nullopt when nothing is.
std::optional<Region> intersect(const Region& a, const Region& b) {
  Region both;
  both.reserve(a.size());
  for (size_t d = 0; d < a.size(); ++d) {
    both.push_back(intersect(a[d], b[d]));
    if (both.back().empty()) return std::nullopt;
  }
  return both;
}

// Calls fn(region) for disjoint regions that are together `a` without `both`,
// its intersection with `b`.
template <class Fn>
void subtract(const Region& a, const Region& b, const Region& both, Fn&& fn) {
  for (size_t d = 0; d < a.size(); ++d) {
    IntervalList rest = subtract(a[d], b[d]);
    if (rest.empty()) continue;
    Region left(both.begin(), both.begin() + static_cast<ptrdiff_t>(d));
    left.push_back(std::move(rest));
    left.insert(left.end(), a.begin() + static_cast<ptrdiff_t>(d) + 1, a.end());
    fn(std::move(left));
  }
}

std::string first_box(const Region& region) {
  std::string text;
  for (const IntervalList& list : region)
    text += fmt::format("{}[{}, {})", text.empty() ? "" : " x ", list[0].lo,
                        list[0].hi);
  return text.empty() ? "the scalar" : text;
}

}  // namespace

HeldRegion::HeldRegion(const Region& region) : ranges_(region) {
  starts_.reserve(region.size());
  for (IntervalList& list : ranges_) {
    std::vector<int64_t>& starts = starts_.emplace_back();
    starts.reserve(list.size());
    int64_t at = 0;
    for (const Interval& r : list) {
      starts.push_back(at);
      at += r.size();
    }
    auto before = [](const Interval& a, const Interval& b) {
      return a.lo < b.lo;
    };
    if (std::is_sorted(list.begin(), list.end(), before)) continue;
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t i = 0; i < list.size(); ++i) order.push_back({list[i].lo, i});
    std::sort(order.begin(), order.end());
    IntervalList ranges;
    std::vector<int64_t> moved;
    for (const auto& [lo, i] : order) {
      ranges.push_back(list[i]);
      moved.push_back(starts[i]);
    }
    list = std::move(ranges);
    starts = std::move(moved);
  }
}

std::vector<Piece> cut_exchange(const HeldRegion& dst,
                                std::span<const HeldRegion> sources, int self,
                                std::string_view where) {
  std::vector<Piece> pieces;
  std::vector<Region> wanted;
  if (!empty(dst.ascending())) wanted.push_back(dst.ascending());
  const int p = static_cast<int>(sources.size());
  for (int i = 0; i < p && !wanted.empty(); ++i) {
    const int m = (self + i) % p;
    const Region& has = sources[static_cast<size_t>(m)].ascending();
    std::vector<Region> next;
    for (Region& w : wanted) {
      std::optional<Region> both = intersect(w, has);
      if (!both) {
        next.push_back(std::move(w));
        continue;
      }
      subtract(w, has, *both, [&](Region r) { next.push_back(std::move(r)); });
      pieces.push_back({std::move(*both), {m}});
    }
    wanted = std::move(next);
  }
  DT_CHECK(wanted.empty(), where,
           "member {} needs {}, which none of the {} members has", self,
           wanted.empty() ? "" : first_box(wanted[0]), p);
  return pieces;
}

std::vector<Piece> cut_reduction(const HeldRegion& dst,
                                 std::span<const HeldRegion> sources) {
  std::vector<Piece> pieces;
  if (!empty(dst.ascending())) pieces.push_back({dst.ascending(), {}});
  for (size_t m = 0; m < sources.size(); ++m) {
    const Region& has = sources[m].ascending();
    std::vector<Piece> next;
    for (Piece& piece : pieces) {
      std::optional<Region> both = intersect(piece.region, has);
      if (!both) {
        next.push_back(std::move(piece));
        continue;
      }
      subtract(piece.region, has, *both, [&](Region r) {
        next.push_back({std::move(r), piece.members});
      });
      piece.members.push_back(static_cast<int>(m));
      next.push_back({std::move(*both), std::move(piece.members)});
    }
    pieces = std::move(next);
  }
  return pieces;
}

Boxes::Boxes(const Region& region, std::span<const HeldRegion* const> arrays,
             std::span<const Sizes> strides)
    : runs_(region.size()), offsets_(arrays.size()) {
  for (const Sizes& s : strides) strides_.emplace_back(s.begin(), s.end());
  std::vector<int64_t> at(arrays.size());
  std::vector<size_t> in(arrays.size());
  for (size_t d = 0; d < region.size(); ++d) {
    std::fill(in.begin(), in.end(), 0);
    for (const Interval& r : region[d]) {
      for (int64_t lo = r.lo; lo < r.hi;) {
        int64_t hi = r.hi;
        for (size_t a = 0; a < arrays.size(); ++a) {
          const IntervalList& list = arrays[a]->ascending()[d];
          while (list[in[a]].hi <= lo) ++in[a];
          hi = std::min(hi, list[in[a]].hi);
          at[a] = arrays[a]->starts(d)[in[a]] + lo - list[in[a]].lo;
        }
        add(runs_[d], hi - lo, at);
        lo = hi;
      }
    }
  }
}

void Boxes::add(std::vector<Run>& runs, int64_t length,
                const std::vector<int64_t>& at) const {
  const size_t arrays = at.size();
  if (!runs.empty()) {
    Run& run = runs.back();
    // Does it lie where the run's next range would: right behind the only one,
    // or one step behind the last?
    bool longer = run.count == 1;
    bool further = run.length == length;
    for (size_t a = 0; a < arrays; ++a) {
      longer = longer && at[a] == run.at[a] + run.length;
      further = further && (run.count == 1 ||
                            at[a] == run.at[a] + run.count * run.step[a]);
    }
    if (longer) {
      run.length += length;
      return;
    }
    if (further) {
      if (run.count == 1)
        for (size_t a = 0; a < arrays; ++a) run.step[a] = at[a] - run.at[a];
      ++run.count;
      return;
    }
  }
  runs.push_back({1, length, at, std::vector<int64_t>(arrays, 0)});
}

void Boxes::select(const std::vector<size_t>& at) {
  shape_.clear();
  for (size_t d = 0; d < runs_.size(); ++d) {
    const Run& run = runs_[d][at[d]];
    if (run.count > 1) shape_.push_back(run.count);
    shape_.push_back(run.length);
  }
  box_strides_.clear();
  for (size_t a = 0; a < offsets_.size(); ++a) {
    offsets_[a] = 0;
    for (size_t d = 0; d < runs_.size(); ++d) {
      const Run& run = runs_[d][at[d]];
      offsets_[a] += run.at[a] * strides_[a][d];
      if (run.count > 1) box_strides_.push_back(run.step[a] * strides_[a][d]);
      box_strides_.push_back(strides_[a][d]);
    }
  }
}

}  // namespace dtensor
