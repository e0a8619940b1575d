// SPDX-License-Identifier: Apache-2.0
// The search space of plan(): the layouts between two others, and the elements
// that a rank lacks of one layout when it holds another.
//
// An intermediate layout is one Cut for each dimension (and a set of partials,
// see Waypoint). Cuts are numbered in each dimension, so that a layout takes a
// few bytes, and comparing two needs no Layout.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor {

// One way to cut a dimension.
struct Cut {
  // The axes, 4 bits each (axis + 1), the outermost in the lowest bits. A tree
  // has all bits set.
  uint64_t order = 0;
  AxisMask axes = 0;
  int num_axes = 0;
  std::array<uint8_t, kMaxAxes> axis{};
  std::array<int64_t, kMaxAxes> stride{};  // of axis[k]; see part_of()
  int64_t parts = 1;
  int64_t largest = 0;  // elements of the largest part
  int64_t least = 0;    // a lower bound of the elements of any part
  bool even = true;     // every part is one range, and all have one size
  // Part i is [begin(i), begin(i + 1)). Balanced parts share `units` granules;
  // other cuts list their boundaries, or are trees, in which a part may have
  // several ranges.
  int64_t units = 0, granule = 1;
  const std::vector<int64_t>* points = nullptr;
  const Dim* tree = nullptr;
  // Where this cut's entries in Route::bounds_ begin (see Route::bounds()); -1:
  // not computed yet.
  mutable int64_t bounds = -1;

  int64_t begin(int64_t i) const {
    if (points) return (*points)[static_cast<size_t>(i)];
    if (even) return largest * i;
    if (units >> 32 == 0) return units * i / parts * granule;
    return static_cast<int64_t>(static_cast<__int128>(units) * i / parts) *
           granule;
  }
  int64_t part_of(const Coord& c) const {
    int64_t i = 0;
    for (int k = 0; k < num_axes; ++k)
      i += stride[static_cast<size_t>(k)] * c[axis[static_cast<size_t>(k)]];
    return i;
  }
};

// The number of the cut of each dimension.
using Cuts = std::array<uint16_t, kMaxDims>;

// The cuts that each dimension can have between two specs of one mesh. Number 0
// is the source's, 1 the destination's (0 if they are equal). A Route is made
// once per thread and reset for every plan, so that planning allocates little.
class Route {
 public:
  // Starts anew, with only the cuts of the source and of the destination.
  void reset(const Spec* from, const Spec* to);
  // Adds more cuts for each dimension. If `all` is set, and the cuts of source
  // and destination are balanced with a common granule, it adds every order of
  // every subset of the axes. Otherwise it adds the whole dimension and the
  // prefixes of the two cuts (a tree has none).
  void expand(bool all);

  // Whether expand() added every order of every subset of the axes to every
  // dimension.
  bool has_all_orders() const { return has_all_orders_; }

  int ndim() const { return ndim_; }
  const Mesh& mesh() const { return mesh_; }
  Cuts from() const { return {}; }
  const Cuts& to() const { return to_; }
  int num_cuts(int d) const { return static_cast<int>(table(d).cuts.size()); }
  const Cut& cut(int d, int i) const {
    return table(d).cuts[static_cast<size_t>(i)];
  }
  AxisMask axes(const Cuts&) const;
  // The number of elements of the largest part.
  int64_t largest(const Cuts&) const;
  Dim dim(int d, int i) const;

  // Whether some cut may leave a rank without an index.
  bool some_part_empty() const { return some_part_empty_; }

  // Whether joining the parts of cut a over the axes that cut b lacks gives the
  // parts of b. Always false if b has an axis that a lacks, or if a cut is a
  // tree. Also false if no part can be empty (some_part_empty()), because
  // common_prefix() is enough then.
  bool merges(int d, int a, int b) const;

  // The number of leading axes of cut a that cut dimension d exactly as the
  // same number of leading axes of cut b.
  int common_prefix(int d, int a, int b) const;
  // The axes whose coordinates divide the indices in the same way in both cuts:
  // ranks that differ in these axes have nothing for each other. These are the
  // common prefix and, for balanced cuts, also axis z of the cuts (x, z) and
  // (y, z) if there are equally many parts over x as over y.
  AxisMask common_axes(int d, int a, int b) const;

  // The most elements that a rank lacks: `summands` times the elements of its
  // part under `to`, less those elements of that part that it has under `from`.
  // On meshes of more than 64 ranks with unequal parts, this looks only at
  // ranks at the ends and in the middle of every axis, so the result may be too
  // small; not if a cut is a tree, nor if `exact` is set and there are at most
  // 2^20 ranks.
  int64_t lack(const Cuts& from, const Cuts& to, int64_t summands,
               bool exact = false) const;
  // A lower bound of lack() that looks at no rank.
  int64_t least_lack(const Cuts& from, const Cuts& to, int64_t summands) const;

 private:
  struct Table {
    int64_t n = 0, granule = 1;
    // Whether the cuts of source and destination are balanced, with `granule`.
    bool balanced = false;
    std::vector<Cut> cuts;
    // The dims of unbalanced cuts, by number. A deque: Cut::tree points into
    // it.
    std::deque<Dim> dims;
  };
  Table& table(int d) { return tables_[static_cast<size_t>(d)]; }
  const Table& table(int d) const { return tables_[static_cast<size_t>(d)]; }
  Cut measure(const Table&, const Split&) const;
  void add_own(Table&, const Dim&);
  void add_orders(Table&, std::vector<int>& axes);
  // Chooses the ranks that lack() looks at. If all parts are equal, those at
  // the ends of every axis give the exact result.
  void choose_probes();
  int64_t part(const Cut&, const Coord&, Interval&, IntervalList& many) const;
  int64_t lack_of(const int* dims, int count, const Cuts& from, const Cuts& to,
                  int64_t summands) const;
  // The bounds of the parts of the ranks in probes_: first where each part
  // begins, then where each ends.
  const double* bounds(const Cut&) const;

  Mesh mesh_;
  int ndim_ = 0;
  Cuts to_{};
  bool some_part_empty_ = false, has_all_orders_ = false;
  std::vector<Coord> probes_;
  mutable std::vector<double> bounds_;
  std::array<Table, kMaxDims> tables_;
};

}  // namespace dtensor
