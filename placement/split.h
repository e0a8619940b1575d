// SPDX-License-Identifier: Apache-2.0
// A Split describes how the ranks of some mesh axes share one dimension.
//
// Part i of p of a dimension of n is [boundary(i), boundary(i+1)) with
//     boundary(i) = floor(i * ceil(n/g) / p) * g,    g the granule (often 1),
// but at most n.
// Several axes form ONE split over the product of their sizes, the first axis
// outermost. For axes a and b of sizes A and B, floor(i*B*n / (A*B)) =
// floor(i*n / A), so the split over (a,b) refines the split over (a) exactly,
// for every n. So popping the last axis is a gather among its ranks, and
// pushing a last axis is a slice, even if sizes do not divide n. Dropping an
// earlier axis is an exchange.
//
// Example: n = 5 over a=2,b=2 is [0,1) [1,2) [2,3) [3,5); over a it is [0,2)
// [2,5).
//
// Instead, a split may list its boundaries (points), for ragged data and for
// layouts from elsewhere. Popping an axis of size B keeps every B-th point;
// pushing one cuts each part [lo,hi) at lo + floor(j*(hi-lo)/B), 0 < j < B.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtensor/placement/mesh.h"

namespace dtensor {

// A half-open range of indices.
struct Interval {
  int64_t lo = 0, hi = 0;
  int64_t size() const { return hi - lo; }
  bool operator==(const Interval&) const = default;
};

class Split {
 public:
  Split() = default;  // whole: every rank has [0, n)
  // A balanced split over these axes in this order. Throws Error if an axis is
  // repeated or outside [0, kMaxAxes), or if the granule is below 1.
  static Split over(const std::vector<int>& axes, int64_t granule = 1);
  // A split with boundaries 0 = points[0] <= ... <= points[parts] = n, for
  // dimensions of size n only. Throws Error if an axis is repeated or not in
  // the mesh, if the first point is not 0, if a point is less than the one
  // before it, or if there are not parts + 1 points.
  static Split at(const std::vector<int>& axes, std::vector<int64_t> points,
                  const Mesh& mesh);

  bool whole() const { return count_ == 0; }
  int num_axes() const { return count_; }
  int axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  AxisMask mask() const;
  std::vector<int> axes() const;
  int64_t granule() const { return granule_; }
  // The listed boundaries, or null.
  const std::vector<int64_t>* points() const { return points_.get(); }

  int64_t parts(const Mesh&) const;
  // The number of the part of the rank at `c`.
  int64_t part_of(const Mesh&, const Coord& c) const;
  // REQUIRES: 0 <= i <= parts.
  int64_t boundary(const Mesh&, int64_t n, int64_t i) const;
  Interval part(const Mesh&, int64_t n, int64_t i) const;
  Interval range(const Mesh& m, int64_t n, const Coord& c) const {
    return whole() ? Interval{0, n} : part(m, n, part_of(m, c));
  }
  // The size of the largest part.
  int64_t largest(const Mesh&, int64_t n) const;

  // popped() is the split without its last axis (REQUIRES: not whole), pushed()
  // the split with one more, last axis. pushed() throws Error if the split has
  // that axis already.
  Split popped(const Mesh&) const;
  Split pushed(const Mesh&, int64_t n, int axis) const;
  // The split over the first `count` axes only: popped() as often as needed.
  Split prefix(const Mesh&, int count) const;
  // The length of the longest common prefix of axes at which the boundaries of
  // both splits also agree.
  int common_prefix(const Split& other, const Mesh&, int64_t n) const;

  // Throws Error if the boundaries are listed and do not end at n.
  void check_end(int64_t n) const {
    if (points_ && points_->back() != n) wrong_end(n);
  }
  // The form that Spec interns, which is equal for equal boundaries over the
  // same axes: it has no axes of size 1, no granule that changes nothing, and
  // no points if a balanced split has the same boundaries. If the granule does
  // not divide n, the boundaries are listed. Throws Error if points do not fit.
  Split canonical(const Mesh&, int64_t n) const;

  uint64_t hash() const;
  bool operator==(const Split& o) const;

 private:
  int64_t granules(int64_t n) const;
  void check_axes(const Mesh&) const;
  [[noreturn]] void wrong_end(int64_t n) const;
  std::array<uint8_t, kMaxAxes> axes_{};
  uint8_t count_ = 0;
  int64_t granule_ = 1;
  std::shared_ptr<const std::vector<int64_t>> points_;
};

}  // namespace dtensor
