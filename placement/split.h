// How one dimension is cut among the ranks of some mesh axes.
//
// Part i of p of a dimension of n is [boundary(i), boundary(i+1)) with
//     boundary(i) = floor(i * (n/g) / p) * g,        g the granule (often 1).
// Several axes are ONE split over the product of their sizes, the first axis
// outermost. Since floor(i*B*n / (A*B)) = floor(i*n / A), the split over (a,b)
// refines the split over (a) exactly, for every n: popping the last axis is a
// gather among its ranks, pushing a last axis is a slice, with no divisibility
// test. Dropping an earlier axis is an exchange.
//
// Example: n = 5 over a=2,b=2 is [0,1) [1,2) [2,3) [3,5); over a it is [0,2)
// [2,5).
//
// A split may instead list its boundaries (points): ragged data, and layouts
// that come from elsewhere. Popping an axis of size B keeps every B-th point;
// pushing one cuts each part [lo,hi) at lo + floor(j*(hi-lo)/B).
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
  // Balanced, over axes in the order given; throws Error when one is repeated.
  static Split over(const std::vector<int>& axes, int64_t granule = 1);
  // With boundaries 0 = points[0] <= ... <= points[parts] = n, for a dimension
  // of exactly n. Throws Error when they are not that.
  static Split at(const std::vector<int>& axes, std::vector<int64_t> points,
                  const Mesh& mesh);

  bool whole() const { return count_ == 0; }
  int num_axes() const { return count_; }
  int axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  AxisMask mask() const;
  std::vector<int> axes() const;
  int64_t granule() const { return granule_; }
  // Null unless the boundaries are listed.
  const std::vector<int64_t>* points() const { return points_.get(); }

  int64_t parts(const Mesh&) const;
  // Which part the rank at `c` has.
  int64_t part_of(const Mesh&, const Coord& c) const;
  // REQUIRES: 0 <= i <= parts.
  int64_t boundary(const Mesh&, int64_t n, int64_t i) const;
  Interval part(const Mesh&, int64_t n, int64_t i) const;
  Interval range(const Mesh& m, int64_t n, const Coord& c) const {
    return whole() ? Interval{0, n} : part(m, n, part_of(m, c));
  }
  // The most that any rank has.
  int64_t largest(const Mesh&, int64_t n) const;

  // Without its last axis (REQUIRES: not whole); over one more axis, the last.
  Split popped(const Mesh&) const;
  Split pushed(const Mesh&, int64_t n, int axis) const;
  // The first `count` axes alone: popped() as often as needed.
  Split prefix(const Mesh&, int count) const;
  // The longest common prefix of axes whose boundaries agree too.
  int common_prefix(const Split& other, const Mesh&, int64_t n) const;

  // Throws Error when the boundaries are listed and do not end at n.
  void check_end(int64_t n) const {
    if (points_ && points_->back() != n) wrong_end(n);
  }
  // The form that Spec interns, equal for equal boundaries over equal axes: no
  // granule where it changes nothing, no axes of size 1, no points that a
  // balanced split has. Throws Error when the granule does not divide n or the
  // points do not fit.
  Split canonical(const Mesh&, int64_t n) const;

  uint64_t hash() const;
  bool operator==(const Split& o) const;

 private:
  void check_axes(const Mesh&) const;
  [[noreturn]] void wrong_end(int64_t n) const;
  std::array<uint8_t, kMaxAxes> axes_{};
  uint8_t count_ = 0;
  int64_t granule_ = 1;
  std::shared_ptr<const std::vector<int64_t>> points_;
};

}  // namespace dtensor
