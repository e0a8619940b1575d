#include "placement/layout.h"

#include <algorithm>
#include <utility>

#include "placement/error.h"
#include "placement/hash.h"

namespace dtensor {
namespace {

void append(IntervalList& out, int64_t lo, int64_t hi) {
  if (lo >= hi) return;
  if (!out.empty() && out.back().hi == lo)
    out.back().hi = hi;
  else
    out.push_back({lo, hi});
}

}  // namespace

int64_t length(const IntervalList& list) {
  int64_t n = 0;
  for (const Interval& r : list) n += r.size();
  return n;
}

int64_t volume(const Region& region) {
  int64_t n = 1;
  for (const IntervalList& list : region) n *= length(list);
  return n;
}

Shape local_shape(const Region& region) {
  Shape s;
  for (const IntervalList& list : region) s.push_back(length(list));
  return s;
}

int64_t overlap(const IntervalList& a, const IntervalList& b) {
  int64_t n = 0;
  for (const Interval& x : a)
    for (const Interval& y : b)
      n += std::max<int64_t>(0, std::min(x.hi, y.hi) - std::max(x.lo, y.lo));
  return n;
}

int64_t overlap(const Region& a, const Region& b) {
  int64_t n = 1;
  for (size_t d = 0; d < a.size(); ++d) n *= overlap(a[d], b[d]);
  return n;
}

Dim Dim::product(std::vector<Dim> parts) {
  Dim d(1);
  d.kind_ = Kind::kProduct;
  for (const Dim& p : parts) d.size_ *= p.size_;
  d.parts_ = std::move(parts);
  return d;
}

Dim Dim::concat(std::vector<Dim> segments) {
  Dim d(0);
  d.kind_ = Kind::kConcat;
  for (const Dim& p : segments) d.size_ += p.size_;
  d.parts_ = std::move(segments);
  return d;
}

AxisMask Dim::axes() const {
  AxisMask m = split_.mask();
  for (const Dim& p : parts_) m |= p.axes();
  return m;
}

void Dim::intervals(const Mesh& mesh, const Coord& c, IntervalList& out) const {
  switch (kind_) {
    case Kind::kLeaf: {
      Interval r = split_.range(mesh, size_, c);
      append(out, r.lo, r.hi);
      return;
    }
    case Kind::kConcat: {
      int64_t base = 0;
      for (const Dim& p : parts_) {
        IntervalList inner;
        p.intervals(mesh, c, inner);
        for (const Interval& r : inner) append(out, base + r.lo, base + r.hi);
        base += p.size_;
      }
      return;
    }
    case Kind::kProduct: {
      IntervalList held{{0, 1}};
      for (const Dim& p : parts_) {
        IntervalList inner, next;
        p.intervals(mesh, c, inner);
        bool all = inner.size() == 1 && inner[0].size() == p.size_;
        for (const Interval& outer : held) {
          if (all) {
            append(next, outer.lo * p.size_, outer.hi * p.size_);
            continue;
          }
          for (int64_t i = outer.lo; i < outer.hi; ++i)
            for (const Interval& r : inner)
              append(next, i * p.size_ + r.lo, i * p.size_ + r.hi);
        }
        held = std::move(next);
      }
      for (const Interval& r : held) append(out, r.lo, r.hi);
      return;
    }
  }
}

int64_t Dim::local_size(const Mesh& mesh, const Coord& c) const {
  switch (kind_) {
    case Kind::kLeaf:
      return split_.range(mesh, size_, c).size();
    case Kind::kConcat: {
      int64_t n = 0;
      for (const Dim& p : parts_) n += p.local_size(mesh, c);
      return n;
    }
    case Kind::kProduct:
      break;
  }
  int64_t n = 1;
  for (const Dim& p : parts_) n *= p.local_size(mesh, c);
  return n;
}

int64_t Dim::largest(const Mesh& mesh) const {
  if (kind_ == Kind::kLeaf)
    return split_.whole() ? size_ : split_.largest(mesh, size_);
  int64_t most = 0;
  for_each_coord(mesh, axes(), [&](const Coord& c) {
    most = std::max(most, local_size(mesh, c));
  });
  return most;
}

namespace {

// The boundaries of a leaf's parts: 0 and its size when it is whole.
std::vector<int64_t> boundaries(const Dim& leaf, const Mesh& mesh) {
  std::vector<int64_t> b;
  for (int64_t i = 0, p = leaf.split().parts(mesh); i <= p; ++i)
    b.push_back(leaf.split().boundary(mesh, leaf.size(), i));
  return b;
}

// product(x, y) in one, where a simpler tree says it; both canonical.
std::optional<Dim> fold(const Dim& x, const Dim& y, const Mesh& mesh) {
  if (x.kind() == Dim::Kind::kConcat && y.kind() == Dim::Kind::kLeaf &&
      y.whole()) {
    std::vector<Dim> segments;
    for (const Dim& s : x.parts()) segments.push_back(Dim::product({s, y}));
    return Dim::concat(std::move(segments)).canonical(mesh);
  }
  if (x.kind() != Dim::Kind::kLeaf || y.kind() != Dim::Kind::kLeaf)
    return std::nullopt;
  // A leaf gives every rank one range: there, a rank has one index of x, or
  // all of y or nothing.
  auto outer = boundaries(x, mesh), inner = boundaries(y, mesh);
  bool one = true, all = true;
  for (size_t i = 1; i < outer.size(); ++i) one &= outer[i] - outer[i - 1] <= 1;
  for (int64_t b : inner) all &= b == 0 || b == y.size();
  if (!one && !all) return std::nullopt;
  std::vector<int64_t> points;
  for (size_t i = 1; i < outer.size(); ++i)
    for (size_t j = 1; j < inner.size(); ++j)
      points.push_back(outer[i - 1] * y.size() +
                       (outer[i] - outer[i - 1]) * inner[j - 1]);
  points.push_back(x.size() * y.size());
  std::vector<int> axes = x.split().axes();
  for (int a : y.split().axes()) axes.push_back(a);
  return Dim(x.size() * y.size(), Split::at(axes, std::move(points), mesh));
}

// concat(a, b) in one, where a simpler tree says it; both canonical.
std::optional<Dim> join(const Dim& a, const Dim& b, const Mesh& mesh) {
  // Leaves of which every rank has the end of one and the start of the other.
  if (a.kind() == Dim::Kind::kLeaf && b.kind() == Dim::Kind::kLeaf &&
      a.split().axes() == b.split().axes()) {
    auto points = boundaries(a, mesh), more = boundaries(b, mesh);
    bool in_order = true;
    for (size_t i = 0; i < points.size(); ++i) {
      in_order &= points[i] == a.size() || more[i] == 0;
      points[i] += more[i];
    }
    if (in_order)
      return Dim(a.size() + b.size(),
                 Split::at(a.split().axes(), std::move(points), mesh));
  }
  // Repetitions of one tree: q|k of the same size is "(2 q)".
  auto times = [](const Dim& d, int64_t& count) {
    if (d.kind() != Dim::Kind::kProduct || !d.parts()[0].whole())
      return std::vector<Dim>{d};
    count += d.parts()[0].size() - 1;
    return std::vector<Dim>(d.parts().begin() + 1, d.parts().end());
  };
  int64_t count = 2;
  std::vector<Dim> what = times(a, count);
  if (what != times(b, count)) return std::nullopt;
  what.insert(what.begin(), Dim(count));
  return Dim::product(std::move(what)).canonical(mesh);
}

// `d` as `outer` indices of `inner` each; d is canonical.
std::optional<std::pair<Dim, Dim>> cut(const Dim& d, int64_t outer,
                                       int64_t inner, const Mesh& mesh) {
  if (d.size() == 0) return std::pair(Dim(outer), Dim(inner));  // no element
  if (outer == 1) return std::pair(Dim(1), d);
  if (inner == 1) return std::pair(d, Dim(1));
  switch (d.kind()) {
    case Dim::Kind::kLeaf: {
      // The first k axes cut the outer indices, between multiples of `inner`.
      // If that leaves axes over, each part has one outer index, and they cut
      // every one alike.
      const Split& s = d.split();
      std::vector<int64_t> all = boundaries(d, mesh);
      size_t stride = 1;
      for (int k = s.num_axes(); k >= 0; --k) {
        std::vector<int64_t> points, rest;
        bool ok = true;
        for (size_t i = 0; i < all.size() && ok; i += stride) {
          ok = all[i] % inner == 0;
          points.push_back(all[i] / inner);
          if (i == 0 || all[i] == all[i - stride] || stride == 1) continue;
          ok = ok && all[i] - all[i - stride] == inner;
          std::vector<int64_t> part;
          for (size_t j = i - stride; j <= i; ++j)
            part.push_back(all[j] - all[i - stride]);
          if (rest.empty()) rest = part;
          ok = ok && part == rest;
        }
        std::vector<int> axes = s.axes();
        std::vector<int> left(axes.begin() + k, axes.end());
        axes.resize(static_cast<size_t>(k));
        if (ok)
          return std::pair(Dim(outer, Split::at(axes, std::move(points), mesh)),
                           Dim(inner, Split::at(left, std::move(rest), mesh)));
        if (k > 0) stride *= static_cast<size_t>(mesh.axis_size(s.axis(k - 1)));
      }
      return std::nullopt;
    }
    case Dim::Kind::kConcat: {
      std::vector<Dim> segments;
      std::optional<Dim> same;
      for (const Dim& p : d.parts()) {
        if (p.size() % inner != 0) return std::nullopt;
        auto c = cut(p, p.size() / inner, inner, mesh);
        if (!c || (same && *same != c->second)) return std::nullopt;
        segments.push_back(std::move(c->first));
        same = std::move(c->second);
      }
      return std::pair(Dim::concat(std::move(segments)).canonical(mesh), *same);
    }
    case Dim::Kind::kProduct: {
      std::vector<Dim> left, right;
      for (const Dim& p : d.parts()) {
        if (outer % p.size() == 0) {
          left.push_back(p);
          outer /= p.size();
        } else if (p.size() % outer == 0) {
          auto c = cut(p, outer, p.size() / outer, mesh);
          if (!c) return std::nullopt;
          left.push_back(std::move(c->first));
          right.push_back(std::move(c->second));
          outer = 1;
        } else {
          return std::nullopt;
        }
      }
      return std::pair(Dim::product(std::move(left)).canonical(mesh),
                       Dim::product(std::move(right)).canonical(mesh));
    }
  }
  return std::nullopt;
}

}  // namespace

Dim Dim::canonical(const Mesh& mesh) const {
  if (kind_ == Kind::kLeaf) return Dim(size_, split_.canonical(mesh, size_));
  bool is_product = kind_ == Kind::kProduct;
  std::vector<Dim> parts;
  auto add = [&](Dim d) {
    if (is_product ? d.size_ == 1 && d.whole() : d.size_ == 0) return;
    while (!parts.empty()) {
      auto both = is_product ? fold(parts.back(), d, mesh)
                             : join(parts.back(), d, mesh);
      if (!both) break;
      d = std::move(*both);
      parts.pop_back();
    }
    parts.push_back(std::move(d));
  };
  for (const Dim& p : parts_) {
    Dim c = p.canonical(mesh);
    if (c.kind_ != kind_) {
      add(c);
    } else {  // a product of products is one product
      for (const Dim& d : c.parts_) add(d);
    }
  }
  if (parts.empty()) return Dim(is_product ? 1 : 0);
  if (parts.size() == 1) return parts[0];
  return is_product ? product(std::move(parts)) : concat(std::move(parts));
}

std::optional<std::vector<Dim>> Dim::unflatten(
    const Mesh& mesh, const std::vector<int64_t>& sizes) const {
  if (sizes.empty())  // a dimension of size 1 that goes away
    return whole() ? std::optional(std::vector<Dim>{}) : std::nullopt;
  std::vector<Dim> dims;
  Dim rest = canonical(mesh);
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    int64_t inner = 1;
    for (size_t j = i + 1; j < sizes.size(); ++j) inner *= sizes[j];
    auto c = cut(rest, sizes[i], inner, mesh);
    if (!c) return std::nullopt;
    dims.push_back(std::move(c->first));
    rest = std::move(c->second);
  }
  dims.push_back(std::move(rest));
  return dims;
}

std::optional<Dim> Dim::slice(const Mesh& mesh, int64_t lo, int64_t n) const {
  if (lo == 0 && n == size_) return *this;
  if (kind_ == Kind::kLeaf) {
    std::vector<int64_t> points = boundaries(*this, mesh);
    for (int64_t& x : points) x = std::clamp<int64_t>(x - lo, 0, n);
    return Dim(n, Split::at(split_.axes(), std::move(points), mesh));
  }
  if (n == 0) return Dim(0);
  std::vector<Dim> kept;
  int64_t hi = lo + n;
  if (kind_ == Kind::kConcat) {
    int64_t base = 0;
    for (const Dim& p : parts_) {
      int64_t from = std::max(lo, base), to = std::min(hi, base + p.size_);
      if (from < to) kept.push_back(*p.slice(mesh, from - base, to - from));
      base += p.size_;
    }
  } else {
    // The end of one outermost index, whole ones, and the start of another.
    Dim rest = product(std::vector<Dim>(parts_.begin() + 1, parts_.end()));
    auto keep = [&](int64_t first, int64_t count, int64_t from, int64_t to) {
      kept.push_back(product({*parts_[0].slice(mesh, first, count),
                              *rest.slice(mesh, from, to - from)}));
    };
    int64_t inner = rest.size_, first = lo / inner, last = hi / inner;
    if (first == last) {
      keep(first, 1, lo % inner, hi % inner);
    } else {
      if (lo % inner != 0) keep(first++, 1, lo % inner, inner);
      if (first < last) keep(first, last - first, 0, inner);
      if (hi % inner != 0) keep(last, 1, 0, hi % inner);
    }
  }
  return concat(std::move(kept)).canonical(mesh);
}

uint64_t Dim::hash() const {
  uint64_t h = hash_mix(static_cast<uint64_t>(kind_), split_.hash());
  h = hash_mix(h, static_cast<uint64_t>(size_));
  for (const Dim& p : parts_) h = hash_mix(h, p.hash());
  return h;
}

std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum",  "avg", "max", "min",
                                        "prod", "any", "all", "mean"};
  return names[static_cast<size_t>(op)];
}

bool commute(ReduceOp a, ReduceOp b) {
  auto linear = [](ReduceOp op) {
    return op == ReduceOp::kSum || op == ReduceOp::kAvg;
  };
  return a == b || (linear(a) && linear(b));
}

Layout Layout::replicated(const Shape& shape) {
  Layout l;
  for (int64_t n : shape) l.dims.push_back(Dim(n));
  return l;
}

AxisMask Layout::split_axes() const {
  AxisMask m = 0;
  for (const Dim& d : dims) m |= d.axes();
  return m;
}

AxisMask Layout::partial_axes() const {
  AxisMask m = 0;
  for (const Partial& p : partials) m |= AxisMask{1} << p.axis;
  return m;
}

std::optional<ReduceOp> Layout::partial_on(int axis) const {
  for (const Partial& p : partials)
    if (p.axis == axis) return p.op;
  return std::nullopt;
}

Shape Layout::shape() const {
  Shape s;
  for (const Dim& d : dims) s.push_back(d.size());
  return s;
}

Region Layout::region(const Mesh& mesh, const Coord& c) const {
  Region r(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) dims[d].intervals(mesh, c, r[d]);
  return r;
}

Layout Layout::canonical(const Mesh& mesh) const {
  Layout l;
  AxisMask used = 0;
  auto use = [&](AxisMask& known, AxisMask more) {
    DT_CHECK(!(known & more), "layout", "axis {} of mesh {} is used twice",
             mesh.axes_to_string(known & more), mesh.to_string());
    known |= more;
  };
  // Segments of a concat share their axes; the parts of a product do not.
  auto axes_of = [&](const Dim& d, auto& self) -> AxisMask {
    AxisMask m = d.split().mask();
    for (const Dim& p : d.parts())
      if (d.kind() == Dim::Kind::kProduct)
        use(m, self(p, self));
      else
        m |= self(p, self);
    return m;
  };
  for (const Dim& d : dims) {
    use(used, axes_of(d, axes_of));
    l.dims.push_back(d.canonical(mesh));
  }
  for (const Partial& p : partials) {
    DT_CHECK(p.axis >= 0 && p.axis < mesh.num_axes(), "layout",
             "mesh {} has no axis {}", mesh.to_string(), p.axis);
    use(used, AxisMask{1} << p.axis);
    if (mesh.axis_size(p.axis) > 1 || p.op == ReduceOp::kMean)
      l.partials.push_back(p);
  }
  for (size_t i = 0; i < l.partials.size(); ++i)
    for (size_t j = i; j > 0; --j) {
      Partial &a = l.partials[j - 1], &b = l.partials[j];
      if (a.axis > b.axis && commute(a.op, b.op)) std::swap(a, b);
    }
  return l;
}

uint64_t Layout::hash() const {
  uint64_t h = 11;
  for (const Dim& d : dims) h = hash_mix(h, d.hash());
  for (const Partial& p : partials)
    h = hash_mix(h, static_cast<uint64_t>(p.axis) * 16 +
                        static_cast<uint64_t>(p.op) + 1000);
  return h;
}

std::optional<Layout> view_layout(const Layout& layout, const Mesh& mesh,
                                  const Shape& to) {
  // Group dimensions of both shapes whose sizes multiply to the same, then
  // see each group as the product of its old dimensions, cut anew.
  Layout result;
  result.partials = layout.partials;
  const auto& from = layout.dims;
  size_t i = 0;
  int j = 0;
  int64_t total = 1;
  for (const Dim& d : from) total *= d.size();
  if (numel(to) != total) return std::nullopt;
  if (total == 0) {  // no element: whole dimensions say that as well
    if (layout.shape() == to) return layout;
    result.dims = Layout::replicated(to).dims;
    return result;
  }
  while (i < from.size() || j < to.size()) {
    std::vector<Dim> old;
    std::vector<int64_t> sizes;
    int64_t a = 1, b = 1;
    if (i < from.size()) a *= from[i].size(), old.push_back(from[i++]);
    if (j < to.size()) b *= to[j], sizes.push_back(to[j++]);
    while (a != b) {
      if (a < b)
        a *= from[i].size(), old.push_back(from[i++]);
      else
        b *= to[j], sizes.push_back(to[j++]);
    }
    // Trailing ones join the group that is open when the other side is done.
    if (i == from.size())
      while (j < to.size() && to[j] == 1) sizes.push_back(to[j++]);
    if (j == to.size())
      while (i < from.size() && from[i].size() == 1) old.push_back(from[i++]);
    Dim merged = (old.size() == 1 ? old[0] : Dim::product(old)).canonical(mesh);
    auto cut = merged.unflatten(mesh, sizes);
    if (!cut) return std::nullopt;
    result.dims.insert(result.dims.end(), cut->begin(), cut->end());
  }
  return result;
}

}  // namespace dtensor
