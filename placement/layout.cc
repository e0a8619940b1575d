// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/layout.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dtensor/placement/error.h"
#include "dtensor/placement/hash.h"

namespace dtensor {
namespace {

void append(IntervalList& out, int64_t lo, int64_t hi) {
  if (lo >= hi) return;
  if (!out.empty() && out.back().hi == lo)
    out.back().hi = hi;
  else
    out.push_back({lo, hi});
}

std::string sizes_text(const std::vector<Dim>& dims) {
  std::string t;
  for (const Dim& d : dims)
    t += (t.empty() ? "" : ", ") + std::to_string(d.size());
  return t;
}

}  // namespace

Dim Dim::product(std::vector<Dim> parts) {
  Dim d(1);
  d.kind_ = Kind::kProduct;
  for (const Dim& p : parts)
    DT_CHECK(!__builtin_mul_overflow(d.size_, p.size_, &d.size_), "layout",
             "a product of sizes {} has more indices than 64 bits can count; "
             "write smaller sizes",
             sizes_text(parts));
  d.parts_ = std::move(parts);
  return d;
}

Dim Dim::concat(std::vector<Dim> segments) {
  Dim d(0);
  d.kind_ = Kind::kConcat;
  for (const Dim& p : segments)
    DT_CHECK(!__builtin_add_overflow(d.size_, p.size_, &d.size_), "layout",
             "segments of sizes {} have more indices than 64 bits can count; "
             "write smaller sizes",
             sizes_text(segments));
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

uint64_t Dim::hash() const {
  uint64_t h = hash_mix(split_.hash(), static_cast<uint64_t>(size_));
  if (kind_ == Kind::kLeaf) return h;
  h = hash_mix(h, static_cast<uint64_t>(kind_));
  for (const Dim& p : parts_) h = hash_mix(h, p.hash());
  return h;
}

std::string_view name(ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "avg", "max",  "min",  "prod",
                                        "any", "all", "mean", "exact"};
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
  l.dims.reserve(dims.size());
  AxisMask used = 0;
  auto use = [&](AxisMask& known, AxisMask more) {
    const bool one = std::has_single_bit(known & more);
    DT_CHECK(!(known & more), "layout",
             "a layout uses {} {} of mesh {} twice; use {} once, to split "
             "one dimension or for one partial",
             one ? "axis" : "axes", mesh.axes_to_string(known & more),
             mesh.to_string(), one ? "it" : "each");
    known |= more;
  };
  // Segments of a concat may be split over the same axes; the parts of a
  // product may not.
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
             "mesh {} has no axis {}; write a number from 0 to {}",
             mesh.to_string(), p.axis, mesh.num_axes() - 1);
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
  // Group the dimensions of both shapes so that the sizes in each pair of
  // groups have the same product; then cut each product of old dimensions anew.
  // An axis splits dimensions of one group only, so looking at each group by
  // itself misses no view.
  Layout result;
  result.partials = layout.partials;
  const auto& from = layout.dims;
  size_t i = 0;
  int j = 0;
  int64_t total = 1;
  for (const Dim& d : from) total *= d.size();
  if (numel(to) != total) return std::nullopt;
  if (total == 0) {  // no elements: whole dimensions will do
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
    // Trailing dimensions of size 1 join the last group of the other side.
    if (i == from.size())
      while (j < to.size() && to[j] == 1) sizes.push_back(to[j++]);
    if (j == to.size())
      while (i < from.size() && from[i].size() == 1) old.push_back(from[i++]);
    if (old.size() == 1 && sizes.size() == 1) {
      result.dims.push_back(std::move(old[0]));
      continue;
    }
    auto cut = (old.size() == 1 ? old[0] : Dim::product(std::move(old)))
                   .unflatten(mesh, sizes);
    if (!cut) return std::nullopt;
    result.dims.insert(result.dims.end(), cut->begin(), cut->end());
  }
  return result;
}

}  // namespace dtensor
