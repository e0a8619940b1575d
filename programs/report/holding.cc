// SPDX-License-Identifier: Apache-2.0
#include "programs/report/holding.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace dtensor::report {
namespace {

IntervalList shown(const Region& region, int dim) {
  return dim < 0 ? IntervalList{{0, 1}} : region[static_cast<size_t>(dim)];
}

bool holds_first_of_others(const Region& region, const View& view) {
  for (int d = 0; d < static_cast<int>(region.size()); ++d) {
    if (d == view.rows || d == view.columns) continue;
    const IntervalList& list = region[static_cast<size_t>(d)];
    if (std::none_of(list.begin(), list.end(),
                     [](const Interval& i) { return i.lo == 0; }))
      return false;
  }
  return true;
}

}  // namespace

View choose_view(const Spec* from, const Spec* to) {
  std::vector<int> dims;
  for (int d = 0; d < from->ndim(); ++d) dims.push_back(d);
  const auto interest = [&](int d) {
    const Dim &a = from->dim(d), &b = to->dim(d);
    const bool moves = !(a == b) || !(from->mesh() == to->mesh());
    return std::tuple(!(a.whole() && b.whole()), moves, from->shape()[d]);
  };
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int a, int b) { return interest(a) > interest(b); });
  if (dims.empty()) return {};
  if (dims.size() == 1) return {-1, dims[0]};
  return {std::min(dims[0], dims[1]), std::max(dims[0], dims[1])};
}

Holding holding(const Spec* spec, const View& view) {
  Holding h;
  const auto size = [&](int dim) { return dim < 0 ? 1 : spec->shape()[dim]; };
  h.rows = {0, size(view.rows)};
  h.columns = {0, size(view.columns)};
  const Mesh& mesh = spec->mesh();
  std::vector<Region> regions;
  for (int64_t r = 0; r < mesh.num_ranks(); ++r) {
    regions.push_back(spec->region(mesh.coordinate(r)));
    if (!holds_first_of_others(regions.back(), view)) regions.back().clear();
  }
  const auto cut = [&](int dim, std::vector<int64_t>& cuts) {
    for (const Region& region : regions)
      if (!region.empty() && dim >= 0)
        for (const Interval& i : shown(region, dim)) {
          cuts.push_back(i.lo);
          cuts.push_back(i.hi);
        }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    if (cuts.size() <= kMostCuts + 1) return;
    h.sampled = true;
    const __int128 n = cuts.back();
    cuts.clear();
    for (size_t i = 0; i <= kMostCuts; ++i)
      cuts.push_back(static_cast<int64_t>(n * static_cast<__int128>(i) /
                                          static_cast<__int128>(kMostCuts)));
  };
  cut(view.rows, h.rows);
  cut(view.columns, h.columns);
  if (h.rows.size() < 2 || h.columns.size() < 2) return h;  // no elements
  h.holders.resize((h.rows.size() - 1) * (h.columns.size() - 1));
  const auto boxes = [](const std::vector<int64_t>& cuts, const Interval& i) {
    const auto first = std::lower_bound(cuts.begin(), cuts.end() - 1, i.lo);
    const auto last = std::lower_bound(cuts.begin(), cuts.end() - 1, i.hi);
    return std::pair(static_cast<size_t>(first - cuts.begin()),
                     static_cast<size_t>(last - cuts.begin()));
  };
  for (size_t rank = 0; rank < regions.size(); ++rank) {
    if (regions[rank].empty() && spec->ndim() > 0) continue;
    for (const Interval& down : shown(regions[rank], view.rows))
      for (const Interval& over : shown(regions[rank], view.columns)) {
        const auto [r0, r1] = boxes(h.rows, down);
        const auto [c0, c1] = boxes(h.columns, over);
        for (size_t r = r0; r < r1; ++r)
          for (size_t c = c0; c < c1; ++c)
            h.holders[r * (h.columns.size() - 1) + c].push_back(
                static_cast<int64_t>(rank));
      }
  }
  return h;
}

std::string listed(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i == 2) end = i + 1;
    text += (text.empty() ? "" : " ") + std::to_string(ranks[i]);
    if (end - i > 1) text += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string holders_text(const Spec* spec,
                         const std::vector<int64_t>& mesh_ranks) {
  const Mesh& mesh = spec->mesh();
  std::map<std::vector<int32_t>, std::vector<int64_t>> terms;
  for (int64_t r : mesh_ranks) {
    std::vector<int32_t> term;
    for (const Partial& p : spec->layout().partials)
      term.push_back(mesh.coordinate(r)[p.axis]);
    terms[term].push_back(mesh.world_rank(r));
  }
  if (terms.size() == 1) return listed(terms.begin()->second);
  const auto& partials = spec->layout().partials;
  ReduceOp op = partials[0].op;
  bool one_op = true;
  for (const Partial& p : partials) one_op &= p.op == op;
  const bool sum = one_op && op == ReduceOp::kSum;
  std::string text;
  for (const auto& [coordinates, ranks] : terms) {
    if (!text.empty()) text += sum ? " + " : ", ";
    text += ranks.size() > 1 ? "(" + listed(ranks) + ")" : listed(ranks);
  }
  if (sum) return text;
  return (one_op ? std::string(name(op)) : "combine") + "(" + text + ")";
}

}  // namespace dtensor::report
