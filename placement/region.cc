// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/region.h"

#include <algorithm>
#include <utility>

#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

bool before(const Interval& a, const Interval& b) { return a.lo < b.lo; }

// The index of the first range of an ascending list that ends after `lo`. The
// search starts at `at`, the result of the previous call, or anew if that range
// is too late because `lo` is smaller now.
size_t ends_behind(const IntervalList& list, int64_t lo, size_t at) {
  if (at > 0 && list[at - 1].hi > lo)
    return static_cast<size_t>(
        std::upper_bound(
            list.begin(), list.end(), lo,
            [](int64_t x, const Interval& r) { return x < r.hi; }) -
        list.begin());
  while (at < list.size() && list[at].hi <= lo) ++at;
  return at;
}

}  // namespace

int64_t length(const IntervalList& list) {
  int64_t n = 0;
  for (const Interval& r : list) n += r.size();
  return n;
}

int64_t volume(const Region& region) {
  int64_t n = 1;
  for (const IntervalList& list : region) n *= length(list);
  return n;
}

Shape local_shape(const Region& region) {
  Shape s;
  for (const IntervalList& list : region) s.push_back(length(list));
  return s;
}

bool ascends(const IntervalList& list) {
  return std::is_sorted(list.begin(), list.end(), before);
}

bool empty(const Region& region) {
  return std::any_of(region.begin(), region.end(),
                     [](const IntervalList& list) { return list.empty(); });
}

int64_t overlap(const IntervalList& a, const IntervalList& b) {
  if (!ascends(b)) {
    if (ascends(a)) return overlap(b, a);
    IntervalList sorted = b;
    std::sort(sorted.begin(), sorted.end(), before);
    return overlap(a, sorted);
  }
  int64_t n = 0;
  size_t at = 0;
  for (const Interval& r : a) {
    at = ends_behind(b, r.lo, at);
    for (size_t i = at; i < b.size() && b[i].lo < r.hi; ++i)
      n += std::min(r.hi, b[i].hi) - std::max(r.lo, b[i].lo);
  }
  return n;
}

int64_t overlap(const Region& a, const Region& b) {
  int64_t n = 1;
  for (size_t d = 0; d < a.size() && n > 0; ++d) n *= overlap(a[d], b[d]);
  return n;
}

IntervalList intersect(const IntervalList& a, const IntervalList& b) {
  IntervalList both;
  size_t at = 0;
  for (const Interval& r : a) {
    at = ends_behind(b, r.lo, at);
    for (size_t i = at; i < b.size() && b[i].lo < r.hi; ++i)
      both.push_back({std::max(r.lo, b[i].lo), std::min(r.hi, b[i].hi)});
  }
  return both;
}

IntervalList subtract(const IntervalList& a, const IntervalList& b) {
  IntervalList rest;
  size_t at = 0;
  for (const Interval& r : a) {
    int64_t lo = r.lo;
    at = ends_behind(b, lo, at);
    for (size_t i = at; i < b.size() && b[i].lo < r.hi; ++i) {
      if (lo < b[i].lo) rest.push_back({lo, b[i].lo});
      lo = std::max(lo, b[i].hi);
    }
    if (lo < r.hi) rest.push_back({lo, r.hi});
  }
  return rest;
}

Region intersect(const Region& a, const Region& b) {
  Region both;
  both.reserve(a.size());
  for (size_t d = 0; d < a.size(); ++d) both.push_back(intersect(a[d], b[d]));
  return both;
}

std::vector<Region> subtract(const Region& a, const Region& b) {
  const Region both = intersect(a, b);
  std::vector<Region> rest;
  if (empty(both)) {
    if (!empty(a)) rest.push_back(a);
    return rest;
  }
  for (size_t d = 0; d < a.size(); ++d) {
    IntervalList left = subtract(a[d], b[d]);
    if (left.empty()) continue;
    const auto at = static_cast<ptrdiff_t>(d);
    Region& r = rest.emplace_back(both.begin(), both.begin() + at);
    r.push_back(std::move(left));
    r.insert(r.end(), a.begin() + at + 1, a.end());
  }
  return rest;
}

uint64_t hash_of(uint64_t h, const Region& region) {
  h = hash_mix(h, region.size());
  for (const IntervalList& list : region) {
    h = hash_mix(h, list.size());
    for (const Interval& r : list)
      h = hash_mix(h, static_cast<uint64_t>(r.lo) * 0x9e3779b97f4a7c15ull ^
                          static_cast<uint64_t>(r.hi));
  }
  return h;
}

bool comes_first(const Region& a, const Region& b) {
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const IntervalList& x, const IntervalList& y) {
        return std::lexicographical_compare(
            x.begin(), x.end(), y.begin(), y.end(),
            [](const Interval& r, const Interval& s) {
              return r.lo != s.lo ? r.lo < s.lo : r.hi < s.hi;
            });
      });
}

HeldRegion::HeldRegion(Region region) : ranges_(std::move(region)) {
  for (size_t d = 0; d < ranges_.size(); ++d) {
    IntervalList& list = ranges_[d];
    if (ascends(list)) continue;
    starts_.resize(ranges_.size());
    struct Range {
      Interval range;
      int64_t start;
    };
    std::vector<Range> ranges;
    int64_t at = 0;
    for (const Interval& r : list) {
      ranges.push_back({r, at});
      at += r.size();
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return before(a.range, b.range);
    });
    for (size_t i = 0; i < ranges.size(); ++i) {
      list[i] = ranges[i].range;
      starts_[d].push_back(ranges[i].start);
    }
  }
}

int64_t HeldRegion::place(size_t dim, int64_t index) const {
  const std::span<const int64_t> starts = this->starts(dim);
  int64_t at = 0;
  for (size_t i = 0; i < ranges_[dim].size(); ++i) {
    const Interval range = ranges_[dim][i];
    if (index < range.hi)
      return (starts.empty() ? at : starts[i]) + index - range.lo;
    at += range.size();
  }
  return at;
}

}  // namespace dtensor
