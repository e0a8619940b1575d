// SPDX-License-Identifier: Apache-2.0
// For one step of a plan: the ranks that have the indices that a receiver
// wants, dimension by dimension.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "dtensor/placement/error.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/region.h"
#include "dtensor/placement/spec.h"

namespace dtensor {

// One dimension of the step's source, as one receiver sees it. A holder is one
// combination of coordinates on the axes that split the dimension and belong to
// the step's group (Sources::group).
struct SourceDim {
  std::vector<IntervalList> lists;  // by holder: the indices that it has
  // By holder: the amount that its coordinates add to a rank's number, as
  // Sources counts ranks.
  std::vector<int64_t> offsets;
  int64_t own = 0;  // the same amount for the receiver's coordinates
  // The wanted indices, grouped by the holders that have them.
  struct Part {
    IntervalList ranges;
    std::vector<int> holders;  // ascending
  };
  std::vector<Part> parts;
  bool disjoint = true;  // no index has several holders
};

// Fills in dim.parts. shared[h] lists the wanted indices that holder h has;
// `wanted` is the number of all wanted indices.
void cut_parts(SourceDim& dim, std::vector<IntervalList> shared,
               int64_t wanted);

// The indices of one dimension that one holder (see SourceDim) has.
struct Holder {
  IntervalList list;
  int64_t offset;
};

// The ranks that the receiver at `at` may read from: those that differ from it
// only in `group`. A rank's number is row-major in the group's axes.
struct Sources {
  const Spec& spec;
  const Mesh& mesh;
  AxisMask group;
  Coord at;
  std::array<int64_t, kMaxAxes> stride{};  // of each axis in a rank's number

  Sources(const Spec& s, AxisMask axes, const Coord& c)
      : spec(s), mesh(s.mesh()), group(axes), at(c) {
    int64_t next = 1;
    for (int a = mesh.num_axes() - 1; a >= 0; --a) {
      if (!(group & (AxisMask{1} << a))) continue;
      stride[static_cast<size_t>(a)] = next;
      next *= mesh.axis_size(a);
    }
  }
  int64_t number(AxisMask axes, const Coord& c) const {
    int64_t n = 0;
    for (int a = 0; a < mesh.num_axes(); ++a)
      if (axes & group & (AxisMask{1} << a))
        n += c[a] * stride[static_cast<size_t>(a)];
    return n;
  }
  int32_t coordinate(int64_t number, int a) const {
    return static_cast<int32_t>(number / stride[static_cast<size_t>(a)] %
                                mesh.axis_size(a));
  }

  // Calls fn(list, offset) for every holder of dimension d (see SourceDim).
  // `list` has the holder's indices in `panel`, in local order; a null panel
  // has all indices. `offset` is the amount that the holder's coordinates add
  // to a rank's number.
  template <class Fn>
  void each_holder(int d, const IntervalList* panel, Fn&& fn) const {
    const Dim& tree = spec.dim(d);
    const AxisMask axes = tree.axes() & group;
    IntervalList list;
    for_each_coord(mesh, axes, [&](const Coord& moving) {
      Coord c = at;
      for (int a = 0; a < mesh.num_axes(); ++a)
        if (axes & (AxisMask{1} << a)) c[a] = moving[a];
      list.clear();
      tree.intervals(mesh, c, list);
      if (panel) list = intersect(list, *panel);
      fn(list, number(axes, c));
    });
  }

  // The SourceDim for these wanted indices. each(add) must call add(list,
  // offset) for every holder that may have some of them. Throws Error if some
  // index has no holder. REQUIRES: `wants` ascends.
  template <class Each>
  SourceDim dim(int d, const IntervalList& wants, Each&& each) const {
    const AxisMask axes = spec.dim(d).axes() & group;
    SourceDim result;
    result.own = number(axes, at);
    std::vector<IntervalList> shared;
    const size_t most =
        static_cast<size_t>(std::min(mesh.size_of(axes), length(wants)));
    shared.reserve(most);
    result.lists.reserve(most);
    result.offsets.reserve(most);
    each([&](const IntervalList& list, int64_t offset) {
      IntervalList both = intersect(
          wants, ascends(list) ? list : HeldRegion({list}).ascending()[0]);
      if (both.empty()) return;
      result.lists.push_back(list);
      result.offsets.push_back(offset);
      shared.push_back(std::move(both));
    });
    cut_parts(result, std::move(shared), length(wants));
    int64_t found = 0;
    for (const SourceDim::Part& part : result.parts)
      found += length(part.ranges);
    DT_CHECK(found == length(wants), "exchange",
             "in dimension {} of {} a rank needs {} indices, but the ranks "
             "that differ from it in {} have only {} of them, which is an "
             "error in dtensor; report it",
             d, spec.to_string(), length(wants), mesh.axes_to_string(group),
             found);
    return result;
  }
};

}  // namespace dtensor
