// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/dims.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace dtensor {
namespace {

std::vector<Dim> map(const std::vector<Dim>& parts, auto&& fn) {
  std::vector<Dim> mapped;
  for (const Dim& p : parts) mapped.push_back(fn(p));
  return mapped;
}

Dim combine(Dim::Kind kind, std::vector<Dim> parts) {
  return kind == Dim::Kind::kProduct ? Dim::product(std::move(parts))
                                     : Dim::concat(std::move(parts));
}

Dim restricted_tree(const Dim& d, const Mesh& mesh, AxisMask axes) {
  if (d.kind() == Dim::Kind::kLeaf) {
    const Split& s = d.split();
    int k = 0;
    while (k < s.num_axes() && (axes >> s.axis(k) & 1)) ++k;
    return Dim(d.size(), k == s.num_axes() ? s : s.prefix(mesh, k));
  }
  return combine(d.kind(), map(d.parts(), [&](const Dim& p) {
                   return restricted_tree(p, mesh, axes);
                 }));
}

// Splits d further over `axes`. REQUIRES: none of them splits d yet.
Dim pushed(const Dim& d, const Mesh& mesh, AxisMask axes) {
  if (!axes) return d;
  std::vector<Dim> parts = d.parts();
  switch (d.kind()) {
    case Dim::Kind::kLeaf: {
      Split s = d.split();
      for (int a = 0; a < mesh.num_axes(); ++a)
        if (axes >> a & 1) s = s.pushed(mesh, d.size(), a);
      return Dim(d.size(), s);
    }
    case Dim::Kind::kProduct: {  // split the largest part
      auto largest = std::max_element(
          parts.begin(), parts.end(),
          [](const Dim& x, const Dim& y) { return x.size() < y.size(); });
      *largest = pushed(*largest, mesh, axes);
      break;
    }
    case Dim::Kind::kConcat:
      for (Dim& p : parts) p = pushed(p, mesh, axes);
  }
  return combine(d.kind(), std::move(parts));
}

Dim partitioned_tree(const Dim& d, const Mesh& mesh) {
  if (d.kind() == Dim::Kind::kLeaf) return d;
  bool segments = d.kind() == Dim::Kind::kConcat;
  return combine(d.kind(), map(d.parts(), [&](const Dim& p) {
                   Dim own = partitioned_tree(p, mesh);
                   return segments ? pushed(own, mesh, d.axes() & ~p.axes())
                                   : own;
                 }));
}

int64_t ceil_div(int64_t n, int64_t step) { return (n + step - 1) / step; }

}  // namespace

Dim balanced(int64_t size, AxisMask axes) {
  std::vector<int> list;
  for (int a = 0; axes >> a; ++a)
    if (axes >> a & 1) list.push_back(a);
  return Dim(size, Split::over(list));
}

Dim restricted(const Dim& d, const Mesh& mesh, AxisMask axes) {
  return restricted_tree(d, mesh, axes).canonical(mesh);
}

Dim partitioned(const Dim& d, const Mesh& mesh) {
  return partitioned_tree(d, mesh).canonical(mesh);
}

bool copies_lie_alike(const Dim& d, const Mesh& mesh) {
  if (d.kind() == Dim::Kind::kLeaf) return true;
  // A range of indices, its place in a rank's part, and the part's size.
  struct Piece {
    int64_t lo, hi, at, size;
  };
  std::vector<Piece> pieces;
  IntervalList held;
  for (int64_t r : mesh.group(d.axes(), mesh.coordinate(0))) {
    const Coord at = mesh.coordinate(r);
    held.clear();
    d.intervals(mesh, at, held);
    const int64_t size = d.local_size(mesh, at);
    int64_t place = 0;
    for (const Interval& i : held) {
      pieces.push_back({i.lo, i.hi, place, size});
      place += i.size();
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& x, const Piece& y) { return x.lo < y.lo; });
  // Pieces that overlap must lie alike. If any earlier piece overlaps the next
  // one, so does the earlier piece that ends last. The two earlier pieces also
  // overlap each other and are known to agree, so it is enough to compare each
  // piece with the one that ends last.
  const Piece* last = nullptr;
  for (const Piece& p : pieces) {
    if (last && p.lo < last->hi &&
        (p.size != last->size || p.at - p.lo != last->at - last->lo))
      return false;
    if (!last || p.hi > last->hi) last = &p;
  }
  return true;
}

std::optional<Dim> every(const Dim& d, const Mesh& mesh, int64_t step) {
  if (step == 1) return d;
  if (d.size() == 0) return Dim(0);
  switch (d.kind()) {
    case Dim::Kind::kLeaf: {
      // Each boundary becomes the number of kept indices below it.
      std::vector<int64_t> points;
      for (int64_t i = 0, p = d.split().parts(mesh); i <= p; ++i)
        points.push_back(ceil_div(d.split().boundary(mesh, d.size(), i), step));
      return Dim(ceil_div(d.size(), step),
                 Split::at(d.split().axes(), std::move(points), mesh));
    }
    case Dim::Kind::kConcat: {
      std::vector<Dim> kept;
      int64_t base = 0;
      for (const Dim& p : d.parts()) {
        int64_t first = (step - base % step) % step;
        base += p.size();
        if (first >= p.size()) continue;
        auto part = every(*p.slice(mesh, first, p.size() - first), mesh, step);
        if (!part) return std::nullopt;
        kept.push_back(std::move(*part));
      }
      return Dim::concat(std::move(kept)).canonical(mesh);
    }
    case Dim::Kind::kProduct:
      break;
  }
  const Dim& outer = d.parts()[0];
  Dim rest = Dim::product({d.parts().begin() + 1, d.parts().end()});
  std::optional<Dim> left = outer, right = rest;
  if (rest.size() % step == 0) {
    right = every(rest, mesh, step);
  } else if (step % rest.size() == 0) {
    left = every(outer, mesh, step / rest.size());
    right = rest.slice(mesh, 0, 1);
  } else {
    return std::nullopt;
  }
  if (!left || !right) return std::nullopt;
  return Dim::product({std::move(*left), std::move(*right)}).canonical(mesh);
}

IntervalList first_held(const Dim& dim, const Mesh& mesh, const Coord& at,
                        AxisMask axes) {
  IntervalList own;
  dim.intervals(mesh, at, own);
  if (dim.kind() == Dim::Kind::kLeaf) return own;
  for (int64_t r : mesh.group(dim.axes() & axes, at)) {
    const Coord other = mesh.coordinate(r);
    if (other == at) break;
    IntervalList theirs;
    dim.intervals(mesh, other, theirs);
    own = subtract(own, HeldRegion({std::move(theirs)}).ascending()[0]);
  }
  return own;
}

}  // namespace dtensor
