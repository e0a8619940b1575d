// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/sources.h"

#include <map>

namespace dtensor {

// Mostly, each holder has its own part of the wanted indices. But a segment of
// a concat may be whole where another one is split, so that several holders
// have the same range.
void cut_parts(SourceDim& dim, std::vector<IntervalList> shared,
               int64_t wanted) {
  int64_t sum = 0;
  for (const IntervalList& list : shared) sum += length(list);
  if (sum == wanted) {
    dim.parts.reserve(shared.size());
    for (size_t h = 0; h < shared.size(); ++h)
      dim.parts.push_back({std::move(shared[h]), {static_cast<int>(h)}});
    return;
  }
  dim.disjoint = false;
  struct End {
    int64_t at;
    int holder;
    bool opens;
  };
  std::vector<End> ends;
  for (size_t h = 0; h < shared.size(); ++h)
    for (const Interval& r : shared[h]) {
      ends.push_back({r.lo, static_cast<int>(h), true});
      ends.push_back({r.hi, static_cast<int>(h), false});
    }
  std::sort(ends.begin(), ends.end(),
            [](const End& a, const End& b) { return a.at < b.at; });
  std::map<std::vector<int>, IntervalList> by_holders;
  std::vector<int> here;  // the holders of the indices from lo on; ascending
  int64_t lo = 0;
  for (const End& end : ends) {
    if (!here.empty() && lo < end.at) {
      IntervalList& list = by_holders[here];
      if (!list.empty() && list.back().hi == lo)
        list.back().hi = end.at;
      else
        list.push_back({lo, end.at});
    }
    lo = end.at;
    const auto it = std::lower_bound(here.begin(), here.end(), end.holder);
    if (end.opens)
      here.insert(it, end.holder);
    else
      here.erase(it);
  }
  for (auto& [holders, list] : by_holders)
    dim.parts.push_back({std::move(list), holders});
}

}  // namespace dtensor
