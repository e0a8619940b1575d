// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/owned.h"

#include <algorithm>
#include <utility>

#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

std::vector<int> axes_in(AxisMask mask) {
  std::vector<int> list;
  for (int a = 0; mask >> a; ++a)
    if (mask >> a & 1) list.push_back(a);
  return list;
}

}  // namespace

Dim owned(int64_t size, const Mesh& mesh, AxisMask axes,
          const std::vector<IntervalList>& parts) {
  const auto ranks = static_cast<size_t>(mesh.size_of(axes));
  DT_CHECK(parts.size() == ranks, "owned",
           "got {} for {} along {}; pass one list for each rank",
           quantity(parts.size(), "list of indices", "lists of indices"),
           quantity(ranks, "rank", "ranks"), mesh.axes_to_string(axes));
  struct Run {
    Interval range;
    size_t owner;
  };
  std::vector<Run> runs;
  for (size_t j = 0; j < ranks; ++j) {
    DT_CHECK(ascends(parts[j]), "owned",
             "the index ranges of list {}, counted from 0, overlap or do not "
             "ascend; order them, and list each index once",
             j);
    for (const Interval& r : parts[j]) runs.push_back({r, j});
  }
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return a.range.lo < b.range.lo; });
  std::vector<Dim> segments;
  int64_t at = 0;
  for (const Run& run : runs) {
    const int64_t lo = run.range.lo, wrong = at < size ? std::min(at, lo) : lo;
    DT_CHECK(lo == at, "owned",
             "index {} of {} {}; list every index for exactly one rank", wrong,
             size,
             wrong < 0 || wrong >= size ? "does not exist"
             : lo < at                  ? "has two owners"
                                        : "has no owner");
    at = run.range.hi;
    std::vector<int64_t> points(ranks + 1, 0);
    std::fill(points.begin() + static_cast<int64_t>(run.owner) + 1,
              points.end(), run.range.size());
    segments.emplace_back(run.range.size(),
                          Split::at(axes_in(axes), std::move(points), mesh));
  }
  DT_CHECK(at == size, "owned",
           "the lists of indices end at {}, but the dimension has size {}; "
           "list every index of the dimension for exactly one rank",
           at, size);
  if (segments.empty()) return Dim(0);
  return Dim::concat(std::move(segments)).canonical(mesh);
}

std::vector<IntervalList> parts_of(const Dim& dim, const Mesh& mesh) {
  const Dim own = partitioned(dim, mesh);
  std::vector<IntervalList> parts;
  for (int64_t r : mesh.group(dim.axes(), mesh.coordinate(0)))
    own.intervals(mesh, mesh.coordinate(r), parts.emplace_back());
  return parts;
}

Dim owned_by(int64_t size, const Mesh& mesh, int axis, int64_t owner) {
  DT_CHECK(owner >= 0 && owner < mesh.axis_size(axis), "layout",
           "axis {} has no rank {}; write Owned() of 0 to {}",
           mesh.axis_name(axis), owner, mesh.axis_size(axis) - 1);
  std::vector<int64_t> points;
  for (int64_t i = 0; i <= mesh.axis_size(axis); ++i)
    points.push_back(i <= owner ? 0 : size);
  return Dim(size, Split::at({axis}, std::move(points), mesh));
}

Dim zigzag(int64_t size, const Mesh& mesh, int axis) {
  const int64_t p = mesh.axis_size(axis), chunks = 2 * p;
  const auto bound = [&](int64_t i) {
    return static_cast<int64_t>(static_cast<__int128>(size) * i / chunks);
  };
  std::vector<IntervalList> parts(static_cast<size_t>(p));
  for (int64_t r = 0; r < p; ++r)
    for (int64_t chunk : {r, chunks - 1 - r}) {
      const Interval range{bound(chunk), bound(chunk + 1)};
      IntervalList& list = parts[static_cast<size_t>(r)];
      if (range.size() == 0) continue;
      if (!list.empty() && list.back().hi == range.lo)
        list.back().hi = range.hi;
      else
        list.push_back(range);
    }
  return owned(size, mesh, AxisMask{1} << axis, parts);
}

Dim subdivided(const Dim& dim, const Mesh& mesh, int axis) {
  DT_CHECK(!(dim.axes() >> axis & 1), "subdivided",
           "mesh axis {} already splits this dimension; write another axis",
           mesh.axis_name(axis));
  const Dim own = partitioned(dim, mesh);
  const AxisMask axes = dim.axes() | AxisMask{1} << axis;
  const int64_t p = mesh.axis_size(axis);
  std::vector<IntervalList> parts;
  for (int64_t r : mesh.group(axes, mesh.coordinate(0))) {
    const Coord at = mesh.coordinate(r);
    IntervalList has, mine;
    own.intervals(mesh, at, has);
    const int64_t n = length(has), i = at[axis];
    // (The products may exceed 64 bits.)
    const auto lo = static_cast<int64_t>(static_cast<__int128>(i) * n / p),
               hi = static_cast<int64_t>(static_cast<__int128>(i + 1) * n / p);
    int64_t before = 0;
    for (const Interval& range : has) {
      const int64_t from = std::max(lo - before, int64_t{0});
      const int64_t to = std::min(hi - before, range.size());
      if (from < to) mine.push_back({range.lo + from, range.lo + to});
      before += range.size();
    }
    parts.push_back(std::move(mine));
  }
  return owned(dim.size(), mesh, axes, parts);
}

}  // namespace dtensor
