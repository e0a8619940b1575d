// What plan() searches: the layouts that a tensor can take between two others,
// and what a rank lacks of one when it holds another.
//
// On the way, a layout is one Cut per dimension (and a set of partials, which
// is plan()'s business). Cuts are numbered per dimension, so that a layout is a
// few bytes and comparing two needs no Layout.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "dtensor/placement/spec.h"

namespace dtensor {

// One way to cut a dimension.
struct Cut {
  // The axes, outermost first, 4 bits each (axis + 1).
  uint64_t order = 0;
  AxisMask axes = 0;
  int num_axes = 0;
  std::array<uint8_t, kMaxAxes> axis{};
  std::array<int64_t, kMaxAxes> stride{};  // of the axis in the part's number
  int64_t parts = 1;
  int64_t largest = 0;  // elements of the largest part
  bool even = true;     // every part is one range, and all are equally large
  // Part i is [begin(i), begin(i + 1)): of balanced parts `units` granules.
  int64_t units = 0, granule = 1;
  const std::vector<int64_t>* points = nullptr;  // else listed here
  const Dim* tree = nullptr;                     // else several ranges
  // Where Route keeps the bounds of the probed ranks' parts; -1: nowhere yet.
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

// A cut per dimension, by number.
using Cuts = std::array<uint16_t, kMaxDims>;

// The cuts that a tensor's dimensions can have between two specs of one mesh.
// Number 0 of each dimension is the source's, 1 the destination's (or 0 when
// they are equal). Made once per thread and reset for every plan, so that
// planning allocates little.
class Route {
 public:
  // Only the ends, at first.
  void reset(const Spec* from, const Spec* to);
  // Adds the others. Where both ends are balanced with one granule these are
  // all orders of all axes when `all`; else what remains of the ends' own cuts
  // when last axes are taken away.
  void expand(bool all);

  // Has expand() added all orders of all axes to every dimension?
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
  // Elements of the largest part.
  int64_t largest(const Cuts&) const;
  Dim dim(int d, int i) const;

  // May some cut leave a rank without an index (other than of no elements)?
  bool some_part_empty() const { return some_part_empty_; }

  // Where parts are empty: do the parts of a that differ only in axes which b
  // lacks make up a part of b? (Where none is, that means a common prefix.)
  bool merges(int d, int a, int b) const;

  // How many of a's first axes cut dimension d where b's first axes do.
  int common_prefix(int d, int a, int b) const;
  // The axes for whose coordinate both cuts divide the indices alike: ranks
  // that differ in them have nothing for each other. The common prefix, and of
  // balanced cuts also (x, a) and (y, a) when x and y are equally many.
  AxisMask common_axes(int d, int a, int b) const;

  // The most, over the ranks, of `summands` times the elements of a part under
  // `to` less those that the rank has of them under `from`. On meshes of more
  // than 64 ranks with unequal parts it looks, unless `exact` (and of more than
  // 2^20 in any case), at ranks at the ends and in the middle of every axis
  // alone.
  int64_t lack(const Cuts& from, const Cuts& to, int64_t summands,
               bool exact = false) const;

 private:
  struct Table {
    int64_t n = 0, granule = 1;
    bool balanced = false;  // both ends are, with this granule
    std::vector<Cut> cuts;
    std::vector<Dim> dims;  // of unbalanced cuts, by number
  };
  Table& table(int d) { return tables_[static_cast<size_t>(d)]; }
  const Table& table(int d) const { return tables_[static_cast<size_t>(d)]; }
  Cut measure(const Table&, const Split&) const;
  void add_own(Table&, const Dim&);
  void add_orders(Table&, std::vector<int>& axes);
  void point_to_trees(Table&);
  // The ranks that lack() looks at: where all parts are equal those at the ends
  // of every axis, which says the same.
  void choose_probes();
  int64_t part(const Cut&, const Coord&, Interval&, IntervalList& many) const;
  int64_t lack_of(const int* dims, int count, const Cuts& from, const Cuts& to,
                  int64_t summands) const;
  // Of every probed rank's part: where it begins, then where each ends.
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
