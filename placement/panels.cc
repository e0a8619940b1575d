// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/panels.h"

#include <algorithm>

namespace dtensor {
namespace {

// The ranges of dimension d within which no rank's part begins or ends, under
// any of the specs.
std::vector<Interval> refinement(std::span<const Spec* const> specs, int d) {
  std::vector<int64_t> cuts{0, specs[0]->shape()[d]};
  IntervalList list;
  for (const Spec* s : specs)
    for_each_coord(s->mesh(), s->dim(d).axes(), [&](const Coord& c) {
      list.clear();
      s->dim(d).intervals(s->mesh(), c, list);
      for (const Interval& r : list) {
        cuts.push_back(r.lo);
        cuts.push_back(r.hi);
      }
    });
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<Interval> ranges;
  for (size_t i = 1; i < cuts.size(); ++i)
    ranges.push_back({cuts[i - 1], cuts[i]});
  return ranges;
}

// Cuts every range into `count` pieces; panel k (from 0) has piece k of each.
// Piece k of a range of n indices ends at floor((n * (k + 1) + phase) / count).
// The phase is the start of the range modulo `count`. It makes ranges that are
// too short for `count` pieces use different panels. (If there are just `count`
// indices in all, panel k has index k.)
std::vector<IntervalList> cut(const std::vector<Interval>& ranges,
                              int64_t count) {
  std::vector<IntervalList> panels(static_cast<size_t>(count));
  if (!ranges.empty() && ranges.back().hi == count) {
    for (int64_t i = 0; i < count; ++i)
      panels[static_cast<size_t>(i)] = {{i, i + 1}};
    return panels;
  }
  int64_t before = 0;
  for (const Interval& r : ranges) {
    const int64_t n = r.size(), phase = before % count;
    for (int64_t i = 0; i < n;) {
      // The piece that contains the i-th index.
      const int64_t k = ((i + 1) * count - phase + n - 1) / n - 1;
      const int64_t end = (n * (k + 1) + phase) / count;
      IntervalList& list = panels[static_cast<size_t>(k)];
      if (!list.empty() && list.back().hi == r.lo + i)
        list.back().hi = r.lo + end;
      else
        list.push_back({r.lo + i, r.lo + end});
      i = end;
    }
    before += n;
  }
  return panels;
}

int64_t most_in_a_panel(const IntervalList& has,
                        const std::vector<IntervalList>& panels) {
  int64_t most = 0;
  for (const IntervalList& p : panels) most = std::max(most, overlap(has, p));
  return most;
}

// Memory of a tensor between source and destination.
struct Between {
  const Spec* spec;
  int components;
};

// The memory that a rank holds at the same time beside source and destination,
// for each step that makes memory.
std::vector<std::vector<Between>> held_between(std::span<const Step> steps) {
  size_t last = steps.size();
  for (size_t i = 0; i < steps.size(); ++i)
    if (makes_memory(steps[i])) last = i;
  std::vector<std::vector<Between>> held;
  std::vector<Between> now;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = steps[i];
    if (!makes_memory(s)) continue;
    std::vector<Between> both = now;
    // A step that makes memory writes to the destination if it is the last of
    // all steps, except for an all-reduce, which needs contiguous memory.
    const bool to_end =
        i == last && i + 1 == steps.size() && s.kind != StepKind::kAllReduce;
    const int sent = sends(s.kind) ? s.from->components() : 1;
    const bool in_place = s.kind == StepKind::kAllReduce && !now.empty();
    now.clear();
    if (sent > s.to->components()) both.push_back({s.to, sent});
    if (!to_end) {
      now.push_back({s.to, s.to->components()});
      if (!in_place || sent > s.to->components()) both.push_back(now[0]);
    }
    held.push_back(std::move(both));
  }
  return held;
}

bool nothing_between(std::span<const Step> steps) {
  for (const auto& together : held_between(steps))
    if (!together.empty()) return false;
  return true;
}

}  // namespace

bool makes_memory(const Step& s) {
  if (s.kind == StepKind::kSlice) return false;
  if (s.kind != StepKind::kFill) return true;
  // A fill for an average changes no value, so it needs no memory.
  if (s.from->components() != s.to->components()) return true;
  for (const Partial& p : s.to->layout().partials)
    if (s.from->layout().partial_on(p.axis) != p.op && p.op != ReduceOp::kAvg)
      return true;
  return false;
}

Panels cut_panels(std::span<const Step> steps, int64_t count) {
  std::vector<const Spec*> specs{steps[0].from};
  for (const Step& s : steps) specs.push_back(s.to);
  const int ndim = specs[0]->ndim();
  std::vector<std::vector<Interval>> ranges;
  std::vector<int64_t> longest;
  for (int d = 0; d < ndim; ++d) {
    ranges.push_back(refinement(specs, d));
    longest.push_back(1);
    for (const Interval& r : ranges.back())
      longest.back() = std::max(longest.back(), r.size());
  }

  // Cut one dimension: the outermost that has a range of at least `count`
  // indices. If there is none, cut several, those with the longest ranges
  // first. The second round also allows panels of which some ranks have no
  // part.
  std::vector<int64_t> counts(static_cast<size_t>(ndim), 1);
  int64_t left = std::max<int64_t>(count, 1);
  for (int round = 0; round < 2 && left > 1; ++round) {
    std::vector<bool> done(counts.size(), false);
    while (left > 1) {
      size_t best = counts.size();
      for (size_t d = 0; d < counts.size(); ++d) {
        if (done[d]) continue;
        const bool better =
            best == counts.size() ||
            (longest[best] / counts[best] < left &&
             longest[d] / counts[d] > longest[best] / counts[best]);
        if (better) best = d;
      }
      if (best == counts.size()) break;
      const int64_t more =
          std::min(left, (longest[best] + counts[best] - 1) / counts[best]);
      done[best] = true;
      counts[best] = std::min(counts[best] * more, longest[best]);
      left = (left + more - 1) / more;
    }
    for (size_t d = 0; d < counts.size(); ++d)
      longest[d] = std::max<int64_t>(specs[0]->shape()[static_cast<int>(d)], 1);
  }

  Panels result;
  result.finest = left > 1;
  std::vector<std::vector<IntervalList>> lists;
  for (size_t d = 0; d < counts.size(); ++d)
    lists.push_back(cut(ranges[d], counts[d]));
  result.regions.push_back({});
  for (const auto& list : lists) {
    std::vector<Region> next;
    for (const Region& head : result.regions)
      for (const IntervalList& l : list) {
        next.push_back(head);
        next.back().push_back(l);
      }
    result.regions = std::move(next);
  }

  // The bytes of the largest part of any panel: a panel is a product, so its
  // largest part is a product too.
  auto largest = [&](const Spec* s) {
    int64_t most = 0;
    IntervalList has;
    for_each_coord(s->mesh(), s->split_axes(), [&](const Coord& c) {
      int64_t n = 1;
      for (int d = 0; d < ndim && n > 0; ++d) {
        has.clear();
        s->dim(d).intervals(s->mesh(), c, has);
        n *= most_in_a_panel(has, lists[static_cast<size_t>(d)]);
      }
      most = std::max(most, n);
    });
    return most * size_of(s->dtype());
  };
  std::vector<std::pair<const Spec*, int64_t>> known;
  for (const auto& together : held_between(steps)) {
    int64_t bytes = 0;
    for (const Between& b : together) {
      auto it = std::find_if(known.begin(), known.end(),
                             [&](const auto& k) { return k.first == b.spec; });
      if (it == known.end())
        it = known.insert(known.end(), {b.spec, largest(b.spec)});
      bytes += it->second * b.components;
    }
    result.between_bytes = std::max(result.between_bytes, bytes);
  }
  return result;
}

std::vector<std::vector<Region>> panels(const Plan& plan, int tensors,
                                        int64_t block_bytes) {
  std::vector<std::vector<Step>> steps(static_cast<size_t>(tensors));
  for (const Step& s : plan.steps)
    steps[static_cast<size_t>(s.tensor)].push_back(s);
  std::vector<std::vector<Region>> best(steps.size());
  int64_t least = -1;
  for (int64_t count = plan.chunks;; count += (count + 3) / 4) {
    std::vector<std::vector<Region>> found(steps.size());
    int64_t bytes = 0;
    bool finest = true;
    for (size_t t = 0; t < steps.size(); ++t) {
      if (nothing_between(steps[t])) continue;
      Panels p = cut_panels(steps[t], count);
      found[t] = std::move(p.regions);
      bytes += p.between_bytes;
      finest &= p.finest;
    }
    if (least < 0 || bytes < least) {
      best = std::move(found);
      least = bytes;
    }
    if (bytes <= block_bytes || finest) return best;
  }
}

}  // namespace dtensor
