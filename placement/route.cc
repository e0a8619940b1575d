// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/route.h"

#include <algorithm>
#include <bit>

namespace dtensor {
namespace {

constexpr size_t kLanes = 4;
// On meshes of more than kAll ranks, lack() looks at some ranks only, unless
// the result must be exact; on more than kMost ranks, even then. (It looks at
// all ranks if a cut is a tree.)
constexpr int64_t kAll = 64;
constexpr int64_t kMost = int64_t{1} << 20;

AxisMask bit(int axis) { return AxisMask{1} << axis; }

// The coordinates of an axis that are looked at: all, the two ends, or the ends
// and the middle.
struct Sweep {
  int64_t size, count;
  int32_t at(int64_t i) const {
    if (i == count - 1) return static_cast<int32_t>(size - 1);
    return static_cast<int32_t>(count == size ? i : i * (size / 2));
  }
};

// Calls fn for every combination of at most `most_per_axis` coordinates (see
// Sweep) of each of `axes`.
template <class Fn>
void sweep(const Mesh& mesh, AxisMask axes, int64_t most_per_axis, Fn&& fn) {
  std::array<Sweep, kMaxAxes> sweeps;
  std::array<int, kMaxAxes> axis;
  std::array<int64_t, kMaxAxes> i{};
  size_t k = 0;
  Coord c;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    if (!(axes & bit(a))) continue;
    int64_t n = mesh.axis_size(a);
    sweeps[k] = {n, std::min(n, most_per_axis)};
    axis[k++] = a;
  }
  for (;;) {
    fn(static_cast<const Coord&>(c));
    size_t d = k;
    while (d > 0 && ++i[d - 1] == sweeps[d - 1].count) {
      i[d - 1] = 0;
      c[axis[d - 1]] = 0;
      --d;
    }
    if (d == 0) return;
    c[axis[d - 1]] = sweeps[d - 1].at(i[d - 1]);
  }
}

}  // namespace

Cut Route::measure(const Table& t, const Split& s) const {
  Cut cut;
  cut.num_axes = s.num_axes();
  for (int k = cut.num_axes - 1; k >= 0; --k) {
    auto at = static_cast<size_t>(k);
    cut.axis[at] = static_cast<uint8_t>(s.axis(k));
    cut.stride[at] = cut.parts;
    cut.parts *= mesh_.axis_size(s.axis(k));
    cut.axes |= bit(s.axis(k));
    cut.order = cut.order << 4 | static_cast<uint64_t>(s.axis(k) + 1);
  }
  cut.points = s.points();
  cut.granule = s.granule();
  cut.units = t.n / cut.granule;
  if (cut.points) {
    cut.even = false;
    cut.largest = s.largest(mesh_, t.n);
  } else {
    cut.even = cut.units % cut.parts == 0;
    cut.largest = (cut.units + cut.parts - 1) / cut.parts * cut.granule;
    cut.least = cut.units / cut.parts * cut.granule;
  }
  return cut;
}

void Route::add_own(Table& t, const Dim& dim) {
  Cut cut = measure(t, dim.split());
  t.dims.push_back(dim);
  if (dim.kind() != Dim::Kind::kLeaf) {
    cut.axes = dim.axes();
    cut.order = ~uint64_t{0};  // not a prefix of any cut
    cut.even = false;
    cut.largest = dim.largest(mesh_);
    cut.least = 0;
    cut.tree = &t.dims.back();
  }
  t.cuts.push_back(cut);
}

void Route::reset(const Spec* from, const Spec* to) {
  mesh_ = from->mesh();
  ndim_ = from->ndim();
  to_ = {};
  some_part_empty_ = false;
  probes_.clear();
  bounds_.clear();
  for (int d = 0; d < ndim_; ++d) {
    Table& t = table(d);
    const Dim &a = from->dim(d), &b = to->dim(d);
    t.n = a.size();
    t.cuts.clear();
    t.dims.clear();
    const Split &x = a.split(), &y = b.split();
    t.balanced = a.kind() == Dim::Kind::kLeaf && !x.points() &&
                 b.kind() == Dim::Kind::kLeaf && !y.points();
    t.granule = std::max(x.granule(), y.granule());
    if (t.balanced && x.granule() != y.granule()) {
      // Both ends get the larger granule if that does not change the end with
      // the smaller one.
      const Split& s = x.granule() < y.granule() ? x : y;
      t.balanced = Split::over(s.axes(), t.granule).canonical(mesh_, t.n) == s;
    }
    if (t.balanced) {
      t.cuts.push_back(measure(t, x));
      if (a != b) t.cuts.push_back(measure(t, y));
    } else {
      add_own(t, a);
      if (a != b) add_own(t, b);
    }
    if (a != b) to_[static_cast<size_t>(d)] = 1;
    some_part_empty_ |= !t.balanced || t.n / t.granule < mesh_.num_ranks();
  }
  if (mesh_.num_ranks() > kAll) choose_probes();
}

void Route::add_orders(Table& t, std::vector<int>& axes) {
  Cut cut = measure(t, Split::over(axes, t.granule));
  bool known = cut.order == t.cuts[0].order || cut.order == t.cuts.back().order;
  if (t.cuts.size() > 1) known |= cut.order == t.cuts[1].order;
  if (!known) t.cuts.push_back(cut);
  for (int a = 0; a < mesh_.num_axes(); ++a) {
    if (mesh_.axis_size(a) == 1 || (cut.axes & bit(a))) continue;
    axes.push_back(a);
    add_orders(t, axes);
    axes.pop_back();
  }
}

void Route::choose_probes() {
  bool even = true;
  for (int d = 0; d < ndim_; ++d)
    even &= table(d).balanced &&
            table(d).n / table(d).granule % mesh_.num_ranks() == 0;
  sweep(mesh_, mesh_.all_axes(),
        even                        ? 2
        : mesh_.num_ranks() <= kAll ? kAll
                                    : 3,
        [&](const Coord& c) { probes_.push_back(c); });
  while (probes_.size() % kLanes) probes_.push_back(probes_.back());
}

void Route::expand(bool all) {
  if (probes_.empty()) choose_probes();
  has_all_orders_ = all;
  for (int d = 0; d < ndim_; ++d) {
    Table& t = table(d);
    has_all_orders_ &= t.balanced;
    if (t.balanced && all) {
      std::vector<int> none;
      add_orders(t, none);
      continue;
    }
    size_t ends = t.cuts.size();
    auto add = [&](const Split& s) {
      for (size_t i = 0; i < t.cuts.size(); ++i)
        if (dim(d, static_cast<int>(i)) == Dim(t.n, s)) return;
      Cut cut = measure(t, s);
      if (!t.balanced) t.dims.push_back(Dim(t.n, s));
      t.cuts.push_back(cut);
    };
    for (size_t i = 0; i < ends; ++i) {
      Dim end = dim(d, static_cast<int>(i));
      add({});
      if (end.kind() != Dim::Kind::kLeaf) continue;
      for (int k = 1; k < end.split().num_axes(); ++k)
        add(end.split().prefix(mesh_, k).canonical(mesh_, t.n));
    }
  }
}

AxisMask Route::axes(const Cuts& c) const {
  AxisMask m = 0;
  for (int d = 0; d < ndim_; ++d) m |= cut(d, c[static_cast<size_t>(d)]).axes;
  return m;
}

int64_t Route::largest(const Cuts& c) const {
  int64_t n = 1;
  for (int d = 0; d < ndim_; ++d)
    n *= cut(d, c[static_cast<size_t>(d)]).largest;
  return n;
}

Dim Route::dim(int d, int i) const {
  const Table& t = table(d);
  if (!t.balanced) return t.dims[static_cast<size_t>(i)];
  const Cut& c = cut(d, i);
  std::vector<int> axes(c.axis.begin(), c.axis.begin() + c.num_axes);
  return Dim(t.n, Split::over(axes, t.granule).canonical(mesh_, t.n));
}

bool Route::merges(int d, int a, int b) const {
  const Cut &x = cut(d, a), &y = cut(d, b);
  if (!some_part_empty_ || x.tree || y.tree || (y.axes & ~x.axes)) return false;
  // Both cuts cover the dimension once, so it is enough that no part of a
  // reaches beyond the part of b that it belongs to.
  bool inside = true;
  sweep(mesh_, x.axes, mesh_.num_ranks(), [&](const Coord& c) {
    int64_t i = x.part_of(c), j = y.part_of(c);
    inside &= x.begin(i) == x.begin(i + 1) ||
              (x.begin(i) >= y.begin(j) && x.begin(i + 1) <= y.begin(j + 1));
  });
  return inside;
}

int Route::common_prefix(int d, int a, int b) const {
  const Cut &x = cut(d, a), &y = cut(d, b);
  if (a == b) return x.num_axes;
  if (x.tree || y.tree) return 0;
  if (!table(d).balanced)
    return dim(d, a).split().common_prefix(dim(d, b).split(), mesh_,
                                           table(d).n);
  int same = std::countr_zero(x.order ^ y.order) / 4;
  return std::min({same, x.num_axes, y.num_axes});
}

AxisMask Route::common_axes(int d, int a, int b) const {
  const Cut &x = cut(d, a), &y = cut(d, b);
  AxisMask common = 0;
  int k = common_prefix(d, a, b);
  for (int i = 0; i < k; ++i) common |= bit(x.axis[static_cast<size_t>(i)]);
  if (!table(d).balanced || !(x.axes & y.axes & ~common)) return common;
  for (int i = k; i < x.num_axes; ++i)
    for (int j = k; j < y.num_axes; ++j) {
      auto p = static_cast<size_t>(i), q = static_cast<size_t>(j);
      // The axes before this one cut both into equally many parts.
      if (x.axis[p] == y.axis[q] &&
          x.parts / x.stride[p] == y.parts / y.stride[q])
        common |= bit(x.axis[p]);
    }
  return common;
}

int64_t Route::part(const Cut& cut, const Coord& c, Interval& range,
                    IntervalList& many) const {
  if (!cut.tree) {
    int64_t i = cut.part_of(c);
    range = {cut.begin(i), cut.begin(i + 1)};
    return range.size();
  }
  many.clear();
  cut.tree->intervals(mesh_, c, many);
  return length(many);
}

int64_t Route::lack_of(const int* dims, int count, const Cuts& from,
                       const Cuts& to, int64_t summands) const {
  AxisMask axes = 0;
  bool even = true;
  for (int k = 0; k < count; ++k) {
    auto d = static_cast<size_t>(dims[k]);
    const Cut &x = cut(dims[k], from[d]), &y = cut(dims[k], to[d]);
    axes |= x.axes | y.axes;
    even &= x.even && y.even;
  }
  // With equal parts, the overlap of two ranges falls with the distance of
  // their starts, which is linear in the coordinates; so some rank at the ends
  // of all axes has the least overlap, and lacks the most.
  int64_t most = 0;
  thread_local IntervalList many_a, many_b;
  sweep(mesh_, axes, even ? 2 : mesh_.num_ranks(), [&](const Coord& c) {
    int64_t need = 1, have = 1;
    for (int k = 0; k < count; ++k) {
      auto d = static_cast<size_t>(dims[k]);
      const Cut &x = cut(dims[k], from[d]), &y = cut(dims[k], to[d]);
      Interval a, b;
      part(x, c, a, many_a);
      need *= part(y, c, b, many_b);
      if (!x.tree && !y.tree) {
        have *=
            std::max<int64_t>(0, std::min(a.hi, b.hi) - std::max(a.lo, b.lo));
        continue;
      }
      if (!x.tree) many_a.assign(1, a);
      if (!y.tree) many_b.assign(1, b);
      have *= overlap(many_a, many_b);
    }
    most = std::max(most, summands * need - have);
  });
  return most;
}

const double* Route::bounds(const Cut& c) const {
  size_t n = probes_.size();
  if (c.bounds < 0) {
    c.bounds = static_cast<int64_t>(bounds_.size());
    bounds_.resize(bounds_.size() + 2 * n);
    double* lo = &bounds_[static_cast<size_t>(c.bounds)];
    // Several ranks may have one part, so divide only once for each part.
    std::array<double, kAll + 1> begin;
    bool few = c.parts <= kAll;
    for (int64_t i = 0; few && i <= c.parts; ++i)
      begin[static_cast<size_t>(i)] = static_cast<double>(c.begin(i));
    for (size_t i = 0; i < n; ++i) {
      int64_t part = c.part_of(probes_[i]);
      auto at = static_cast<size_t>(part);
      lo[i] = few ? begin[at] : static_cast<double>(c.begin(part));
      lo[n + i] = few ? begin[at + 1] : static_cast<double>(c.begin(part + 1));
    }
  }
  return &bounds_[static_cast<size_t>(c.bounds)];
}

int64_t Route::lack(const Cuts& from, const Cuts& to, int64_t summands,
                    bool exact) const {
  std::array<int, kMaxDims> dims;
  int count = 0;
  int64_t same = 1;
  bool trees = false;
  for (int d = 0; d < ndim_; ++d) {
    auto at = static_cast<size_t>(d);
    const Cut& y = cut(d, to[at]);
    if (from[at] == to[at]) {
      // The axes of this dimension cut no other one, so its largest part occurs
      // with every part of the other dimensions.
      same *= y.largest;
    } else {
      dims[static_cast<size_t>(count++)] = d;
      trees |= y.tree || cut(d, from[at]).tree;
    }
  }
  if (count == 0) return (summands - 1) * same;
  if (same == 0) return 0;
  if (trees || probes_.empty() || (exact && mesh_.num_ranks() <= kMost))
    return same * lack_of(dims.data(), count, from, to, summands);

  // Look at kLanes ranks at once, in doubles, so that compilers vectorize the
  // loops.
  const size_t n = probes_.size();
  std::array<const double*, kMaxDims> x, y;
  for (int k = 0; k < count; ++k) {
    auto at = static_cast<size_t>(dims[static_cast<size_t>(k)]);
    bounds(cut(static_cast<int>(at), from[at]));
    bounds(cut(static_cast<int>(at), to[at]));
  }
  for (int k = 0; k < count; ++k) {
    auto at = static_cast<size_t>(dims[static_cast<size_t>(k)]);
    x[static_cast<size_t>(k)] = bounds(cut(static_cast<int>(at), from[at]));
    y[static_cast<size_t>(k)] = bounds(cut(static_cast<int>(at), to[at]));
  }
  const double q = static_cast<double>(summands);
  std::array<double, kLanes> most{};
  for (size_t first = 0; first < n; first += kLanes) {
    std::array<double, kLanes> need, have;
    need.fill(1);
    have.fill(1);
    for (size_t k = 0; k < static_cast<size_t>(count); ++k) {
      const double *a = x[k] + first, *b = y[k] + first;
      for (size_t i = 0; i < kLanes; ++i) {
        double lo = a[i] > b[i] ? a[i] : b[i];
        double hi = a[n + i] < b[n + i] ? a[n + i] : b[n + i];
        double both = hi - lo;
        need[i] *= b[n + i] - b[i];
        have[i] *= both > 0 ? both : 0;
      }
    }
    for (size_t i = 0; i < kLanes; ++i) {
      double lacks = q * need[i] - have[i];
      most[i] = most[i] > lacks ? most[i] : lacks;
    }
  }
  return same *
         static_cast<int64_t>(*std::max_element(most.begin(), most.end()));
}

// A rank that wants n elements of a dimension has at most n of them, and at
// most the largest part of `from`. The number that it lacks grows with n, so
// the number is least for the smallest part.
int64_t Route::least_lack(const Cuts& from, const Cuts& to,
                          int64_t summands) const {
  int64_t need = 1, have = 1;
  for (int d = 0; d < ndim_; ++d) {
    auto at = static_cast<size_t>(d);
    const Cut& y = cut(d, to[at]);
    const bool same = from[at] == to[at];
    const int64_t n = same ? y.largest : y.least;
    need *= n;
    have *= same ? n : std::min(cut(d, from[at]).largest, n);
  }
  return summands * need - have;
}

}  // namespace dtensor
