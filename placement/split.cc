// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/split.h"

#include <algorithm>
#include <numeric>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

// floor(i * n / p). The product has 128 bits, so it does not overflow.
int64_t balanced(int64_t n, int64_t p, int64_t i) {
  return static_cast<int64_t>(static_cast<__int128>(n) * i / p);
}

std::string listed(const std::vector<int64_t>& points) {
  std::string t;
  for (int64_t x : points) t += (t.empty() ? "" : "|") + std::to_string(x);
  return t;
}

}  // namespace

Split Split::over(const std::vector<int>& axes, int64_t granule) {
  Split s;
  DT_CHECK(granule >= 1, "split", "the granule is {}; write 1 or more",
           granule);
  s.granule_ = axes.empty() ? 1 : granule;
  for (int a : axes) {
    DT_CHECK(a >= 0 && a < kMaxAxes, "split",
             "there is no mesh axis {}; write a number from 0 to {}", a,
             kMaxAxes - 1);
    DT_CHECK(!(s.mask() >> a & 1), "split",
             "mesh axis {} splits the same dimension twice; list it once", a);
    s.axes_[s.count_++] = static_cast<uint8_t>(a);
  }
  return s;
}

Split Split::at(const std::vector<int>& axes, std::vector<int64_t> points,
                const Mesh& mesh) {
  Split s = over(axes);
  s.check_axes(mesh);
  int64_t p = s.parts(mesh);
  DT_CHECK(static_cast<int64_t>(points.size()) == p + 1, "split",
           "a split into {} needs {} boundaries, but '{}' has {}; list 0, the "
           "start of each further part, and the size",
           quantity(p, "part", "parts"), p + 1, listed(points), points.size());
  DT_CHECK(points[0] == 0 && std::is_sorted(points.begin(), points.end()),
           "split", "the boundaries {} must start at 0 and not decrease",
           listed(points));
  s.points_ = std::make_shared<const std::vector<int64_t>>(std::move(points));
  return s;
}

void Split::wrong_end(int64_t n) const {
  fail("split",
       "the boundaries {} end at {}, but the dimension has size {}; write "
       "boundaries from 0 to {}",
       listed(*points_), points_->back(), n, n);
}

void Split::check_axes(const Mesh& m) const {
  for (int i = 0; i < count_; ++i)
    DT_CHECK(axis(i) < m.num_axes(), "split",
             "mesh {} has no axis {}; write a number from 0 to {}",
             m.to_string(), axis(i), m.num_axes() - 1);
}

AxisMask Split::mask() const {
  AxisMask m = 0;
  for (int i = 0; i < count_; ++i) m |= AxisMask{1} << axis(i);
  return m;
}

std::vector<int> Split::axes() const {
  return std::vector<int>(axes_.begin(), axes_.begin() + count_);
}

int64_t Split::parts(const Mesh& m) const {
  int64_t p = 1;
  for (int i = 0; i < count_; ++i) p *= m.axis_size(axis(i));
  return p;
}

int64_t Split::part_of(const Mesh& m, const Coord& c) const {
  int64_t i = 0;
  for (int k = 0; k < count_; ++k) i = i * m.axis_size(axis(k)) + c[axis(k)];
  return i;
}

int64_t Split::boundary(const Mesh& m, int64_t n, int64_t i) const {
  if (points_) return (*points_)[static_cast<size_t>(i)];
  return std::min(n, balanced(granules(n), parts(m), i) * granule_);
}

int64_t Split::granules(int64_t n) const {
  return n / granule_ + (n % granule_ != 0);
}

Interval Split::part(const Mesh& m, int64_t n, int64_t i) const {
  return {boundary(m, n, i), boundary(m, n, i + 1)};
}

int64_t Split::largest(const Mesh& m, int64_t n) const {
  int64_t p = parts(m);
  if (!points_ && n % granule_ == 0)
    return (granules(n) + p - 1) / p * granule_;
  int64_t most = 0;
  for (int64_t i = 0; i < p; ++i) most = std::max(most, part(m, n, i).size());
  return most;
}

Split Split::popped(const Mesh& m) const { return prefix(m, count_ - 1); }

Split Split::prefix(const Mesh& m, int count) const {
  if (count == 0) return {};
  Split s = *this;
  int64_t stride = 1;
  while (s.count_ > count) {
    stride *= m.axis_size(axis(--s.count_));
    s.axes_[s.count_] = 0;
  }
  if (points_ && stride > 1) {
    std::vector<int64_t> kept;
    for (size_t i = 0; i < points_->size(); i += static_cast<size_t>(stride))
      kept.push_back((*points_)[i]);
    s.points_ = std::make_shared<const std::vector<int64_t>>(std::move(kept));
    return s.canonical(m, s.points_->back());
  }
  return s;
}

Split Split::pushed(const Mesh& m, int64_t n, int new_axis) const {
  DT_CHECK(!(mask() >> new_axis & 1), "split",
           "mesh axis {} already splits this dimension; write another axis",
           m.axis_name(new_axis));
  Split s = *this;
  s.axes_[s.count_++] = static_cast<uint8_t>(new_axis);
  if (!points_) return s;
  int64_t b = m.axis_size(new_axis), p = parts(m);
  std::vector<int64_t> cut;
  for (int64_t i = 0; i < p; ++i) {
    Interval r = part(m, n, i);
    for (int64_t j = 0; j < b; ++j)
      cut.push_back(r.lo + balanced(r.size(), b, j));
  }
  cut.push_back(n);
  s.points_ = std::make_shared<const std::vector<int64_t>>(std::move(cut));
  return s.canonical(m, n);
}

int Split::common_prefix(const Split& o, const Mesh& m, int64_t n) const {
  int k = 0;
  while (k < count_ && k < o.count_ && axis(k) == o.axis(k)) ++k;
  for (; k > 0; --k)
    if (prefix(m, k).canonical(m, n) == o.prefix(m, k).canonical(m, n)) break;
  return k;
}

Split Split::canonical(const Mesh& m, int64_t n) const {
  check_axes(m);
  Split s = *this;
  s.count_ = 0;
  for (int i = 0; i < count_; ++i)
    if (m.axis_size(axis(i)) > 1)
      s.axes_[s.count_++] = static_cast<uint8_t>(axis(i));
  std::fill(s.axes_.begin() + s.count_, s.axes_.end(), uint8_t{0});
  check_end(n);
  int64_t p = s.parts(m);
  DT_CHECK(!points_ || static_cast<int64_t>(points_->size()) == p + 1, "split",
           "the boundaries {} were listed for another mesh; list {}, because "
           "on mesh {} the number of parts is {}",
           listed(*points_), p + 1, m.to_string(), p);
  if (s.count_ == 0) return {};
  if (!points_ && n % granule_ != 0) {
    std::vector<int64_t> cut;
    for (int64_t i = 0; i <= p; ++i) cut.push_back(boundary(m, n, i));
    s.granule_ = 1;
    s.points_ = std::make_shared<const std::vector<int64_t>>(std::move(cut));
  }
  if (s.points_) {
    int64_t g = n;
    for (int64_t x : *s.points_) g = std::gcd(g, x);
    g = std::max<int64_t>(g, 1);
    for (int64_t granule : {int64_t{1}, g}) {
      bool same = true;
      for (int64_t i = 1; i < p; ++i)
        same &= balanced(n / granule, p, i) * granule == boundary(m, n, i);
      if (!same) continue;
      s.granule_ = granule;
      s.points_ = nullptr;
      break;
    }
    return s;
  }
  // If parts have k and k + 1 granules, the granule matters; if all have k, it
  // does not.
  if (granule_ > 1 && granules(n) % p == 0) s.granule_ = 1;
  return s;
}

uint64_t Split::hash() const {
  uint64_t packed = 0;
  for (int i = 0; i < count_; ++i)
    packed = packed << 8 | (static_cast<uint64_t>(axis(i)) + 1);
  uint64_t h = hash_mix(static_cast<uint64_t>(granule_), packed);
  if (points_)
    for (int64_t x : *points_) h = hash_mix(h, static_cast<uint64_t>(x));
  return h;
}

bool Split::operator==(const Split& o) const {
  if (count_ != o.count_ || granule_ != o.granule_ || !points_ != !o.points_ ||
      axes_ != o.axes_)
    return false;
  return points_ == o.points_ || *points_ == *o.points_;
}

}  // namespace dtensor
