// SPDX-License-Identifier: Apache-2.0
// Builds the simplest tree of a dimension, and the trees of its sub-dimensions,
// from the holders of the dimension's indices (holders.h). Most leaves and
// simple products do not need the holders.
#include <algorithm>
#include <numeric>
#include <utility>

#include "dtensor/placement/holders.h"
#include "dtensor/placement/layout.h"

namespace dtensor {
namespace {

// The common refinement of the runs of all axes: within one of these runs,
// every axis has one label.
struct Atoms {
  std::vector<int> axes;
  std::vector<int64_t> ends;
  std::vector<int32_t> labels;  // of axes[a] in run i: labels[i*axes.size()+a]

  explicit Atoms(const Holders& h) {
    size_t n = h.waves.size();
    std::vector<size_t> at(n, 0);
    std::vector<int64_t> base(n, 0);
    for (const Wave& w : h.waves) axes.push_back(w.axis);
    for (int64_t from = 0; from < h.size;) {
      int64_t to = h.size;
      for (size_t a = 0; a < n; ++a) {
        const Wave& w = h.waves[a];
        labels.push_back(w.runs[at[a]].label);
        if (!w.constant()) to = std::min(to, base[a] + w.runs[at[a]].end);
      }
      ends.push_back(to);
      for (size_t a = 0; a < n; ++a) {
        const Wave& w = h.waves[a];
        if (w.constant() || base[a] + w.runs[at[a]].end > to) continue;
        if (++at[a] == w.runs.size()) {
          at[a] = 0;
          base[a] += w.period();
        }
      }
      from = to;
    }
  }

  size_t size() const { return ends.size(); }
  int64_t begin_of(size_t i) const { return i == 0 ? 0 : ends[i - 1]; }
  int32_t label(size_t i, size_t a) const {
    return labels[i * axes.size() + a];
  }

  Holders range(size_t first, size_t last) const {
    Holders h{ends[last - 1] - begin_of(first), {}};
    for (size_t a = 0; a < axes.size(); ++a) {
      Wave w{axes[a], {}};
      for (size_t i = first; i < last; ++i)
        w.append(ends[i] - begin_of(first), label(i, a));
      w.shorten();
      if (!w.any()) h.waves.push_back(std::move(w));
    }
    return h;
  }

  // The order of the axes (as indices into `axes`) in which one Split over them
  // has the runs first .. last - 1 as its parts. Axes that are kAny in all of
  // these runs are left out. nullopt if there is no such order. If there are
  // several, the first by mesh axis.
  std::optional<std::vector<size_t>> order(size_t first, size_t last) const {
    std::vector<size_t> order, rest;
    for (size_t a = 0; a < axes.size(); ++a) {
      bool any = label(first, a) == Wave::kAny;
      for (size_t i = first; i < last; ++i)
        if ((label(i, a) == Wave::kAny) != any) return std::nullopt;
      if (!any) rest.push_back(a);
    }
    // apart[i]: an axis chosen earlier has a larger label in run first + i than
    // in the run before it, so that later axes may have any labels in the two.
    std::vector<bool> apart(last - first, false);
    while (!rest.empty()) {
      auto rises = [&](size_t a) {
        for (size_t i = first + 1; i < last; ++i)
          if (!apart[i - first] && label(i, a) < label(i - 1, a)) return false;
        return true;
      };
      auto found = std::find_if(rest.begin(), rest.end(), rises);
      if (found == rest.end()) return std::nullopt;
      for (size_t i = first + 1; i < last; ++i)
        if (label(i, *found) > label(i - 1, *found)) apart[i - first] = true;
      order.push_back(*found);
      rest.erase(found);
    }
    return order;
  }
};

// Whether h is certainly not a leaf, found without listing the runs: all axes
// repeat (the outermost axis of a leaf does not), or some axis has more periods
// than a leaf has parts.
bool plainly_no_leaf(const Holders& h, const Mesh& mesh) {
  int64_t parts = 1;
  for (const Wave& w : h.waves) parts *= mesh.axis_size(w.axis);
  bool all_repeat = true;
  for (const Wave& w : h.waves) {
    if (!w.constant() && h.size / w.period() > parts) return true;
    all_repeat &= !w.constant() && w.period() < h.size;
  }
  return all_repeat;
}

// With fewer granules than parts, several orders of the axes may describe the
// same parts with different boundaries. Returns the leaf of the first order
// that is balanced; nullopt if there is none, if there are enough granules, or
// if there are more than four axes.
std::optional<Dim> as_balanced_leaf(const Holders& h, const Mesh& mesh) {
  std::vector<int> axes;
  int64_t parts = 1, granule = h.size;
  for (const Wave& w : h.waves) {
    axes.push_back(w.axis);
    parts *= mesh.axis_size(w.axis);
    if (!w.constant()) granule = std::gcd(granule, w.grain());
  }
  // (With many axes there are too many orders to try.)
  if (h.size / granule >= parts || axes.size() > 4) return std::nullopt;
  do {
    for (int64_t g : {int64_t{1}, granule}) {
      Dim leaf(h.size, Split::over(axes, g).canonical(mesh, h.size));
      if (holders_of(leaf, mesh) == h) return leaf;
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
  return std::nullopt;
}

std::optional<Dim> as_leaf(const Holders& h, const Mesh& mesh) {
  if (h.whole()) return Dim(h.size);
  if (plainly_no_leaf(h, mesh)) return std::nullopt;
  Atoms atoms(h);
  auto order = atoms.order(0, atoms.size());
  if (!order) return std::nullopt;
  if (auto leaf = as_balanced_leaf(h, mesh)) return leaf;
  std::vector<int> axes;
  int64_t parts = 1;
  for (size_t a : *order) {
    axes.push_back(atoms.axes[a]);
    parts *= mesh.axis_size(atoms.axes[a]);
  }
  std::vector<int64_t> points;
  points.reserve(static_cast<size_t>(parts) + 1);
  for (size_t i = 0; i < atoms.size(); ++i) {
    int64_t part = 0;
    for (size_t a : *order)
      part = part * mesh.axis_size(atoms.axes[a]) + atoms.label(i, a);
    points.resize(static_cast<size_t>(part) + 1, atoms.begin_of(i));
  }
  points.resize(static_cast<size_t>(parts) + 1, h.size);
  return Dim(h.size,
             Split::at(axes, std::move(points), mesh).canonical(mesh, h.size));
}

Dim build(const Holders& h, const Mesh& mesh);

Dim build_product(std::vector<Dim> parts) {
  std::vector<Dim> flat;
  for (Dim& p : parts) {
    if (p.kind() == Dim::Kind::kProduct)
      flat.insert(flat.end(), p.parts().begin(), p.parts().end());
    else
      flat.push_back(std::move(p));
  }
  return Dim::product(std::move(flat));
}

// Builds a dimension that is neither a leaf nor a product. From the left, each
// segment is the longest leaf or product (with many runs, the longest leaf);
// equal segments in a row become a product.
Dim build_concat(const Holders& h, const Mesh& mesh) {
  // The search for products takes time quadratic in the number of runs, so it
  // is left out for more runs than this.
  constexpr size_t kSearched = 64;
  Atoms atoms(h);
  size_t n = atoms.size();
  std::vector<std::pair<Dim, int64_t>> segments;  // and repetitions
  for (size_t first = 0; first < n;) {
    // A prefix of a leaf is a leaf, so a binary search finds the end of the
    // longest one.
    size_t leaf = first + 1, beyond = n + 1;
    for (size_t step = 1; leaf < beyond - 1;) {
      size_t last =
          beyond <= n ? (leaf + beyond) / 2 : std::min(leaf + step, n);
      step *= 2;
      (atoms.order(first, last) ? leaf : beyond) = last;
    }
    size_t last = n <= kSearched ? n : leaf;
    while (last > leaf && largest_cut(atoms.range(first, last)) == 0) --last;
    Dim d = build(atoms.range(first, last), mesh);
    if (!segments.empty() && segments.back().first == d)
      ++segments.back().second;
    else
      segments.emplace_back(std::move(d), 1);
    first = last;
  }
  std::vector<Dim> dims;
  for (auto& [d, count] : segments)
    dims.push_back(count == 1 ? std::move(d)
                              : build_product({Dim(count), std::move(d)}));
  return Dim::concat(std::move(dims));
}

Dim build(const Holders& h, const Mesh& mesh) {
  if (auto leaf = as_leaf(h, mesh)) return *leaf;
  // The factors that are not products themselves, outermost first. join()
  // merges a factor with the one before it if the two form one leaf, or if the
  // later one is whole.
  struct Factor {
    Holders holders;
    std::optional<Dim> leaf;
  };
  std::vector<Factor> factors;
  auto join = [&](Holders d) {
    auto leaf = as_leaf(d, mesh);
    while (!factors.empty()) {
      Holders both = times(factors.back().holders, d);
      auto joined = as_leaf(both, mesh);
      if (!d.whole() && !joined) break;
      d = std::move(both);
      leaf = std::move(joined);
      factors.pop_back();
    }
    factors.push_back({std::move(d), std::move(leaf)});
  };
  Holders rest = h;
  while (int64_t inner = largest_cut(rest)) {
    auto both = cut(rest, inner);
    join(std::move(both->first));
    rest = std::move(both->second);
  }
  if (factors.empty()) return build_concat(h, mesh);
  join(std::move(rest));
  std::vector<Dim> parts;
  for (Factor& f : factors)
    parts.push_back(f.leaf ? std::move(*f.leaf)
                           : build_concat(f.holders, mesh));
  return build_product(std::move(parts));
}

bool no_part_empty(const Split& s, const Mesh& mesh, int64_t n) {
  if (!s.points()) return n / s.granule() >= s.parts(mesh);
  const auto& p = *s.points();
  return std::adjacent_find(p.begin(), p.end()) == p.end();
}

// The canonical form of a product of whole parts and at most one split leaf,
// the usual case, found without build(). nullopt for other products, or if a
// part of the leaf is empty. REQUIRES: d.size() > 0.
std::optional<Dim> simple_product(const Dim& d, const Mesh& mesh) {
  const Dim* leaf = nullptr;
  int64_t before = 1, after = 1;
  for (const Dim& p : d.parts()) {
    if (p.whole()) {
      (leaf ? after : before) *= p.size();
      continue;
    }
    if (leaf || p.kind() != Dim::Kind::kLeaf) return std::nullopt;
    leaf = &p;
  }
  if (!leaf) return Dim(d.size());
  Split s = leaf->split().canonical(mesh, leaf->size());
  if (s.whole()) return Dim(d.size());
  // With an empty part, the periods of all axes may be shorter than the leaf,
  // so that the canonical tree may have other factors.
  if (!no_part_empty(s, mesh, leaf->size())) return std::nullopt;
  int64_t n = leaf->size() * after;
  if (after > 1 && s.points()) {
    std::vector<int64_t> points = *s.points();
    for (int64_t& x : points) x *= after;
    s = Split::at(s.axes(), std::move(points), mesh);
  } else if (after > 1) {
    s = Split::over(s.axes(), s.granule() * after);
  }
  Dim scaled(n, s.canonical(mesh, n));
  return before == 1 ? scaled : Dim::product({Dim(before), std::move(scaled)});
}

// The Dim of the indices [lo, lo + n). It need not be canonical.
Dim cut_out(const Dim& d, const Mesh& mesh, int64_t lo, int64_t n) {
  if (lo == 0 && n == d.size()) return d;
  if (d.kind() == Dim::Kind::kLeaf) {
    if (d.whole()) return Dim(n);
    const Split& s = d.split();
    std::vector<int64_t> points;
    for (int64_t i = 0, p = s.parts(mesh); i <= p; ++i)
      points.push_back(
          std::clamp<int64_t>(s.boundary(mesh, d.size(), i) - lo, 0, n));
    return Dim(n, Split::at(s.axes(), std::move(points), mesh));
  }
  if (n == 0) return Dim(0);
  std::vector<Dim> kept;
  int64_t hi = lo + n;
  if (d.kind() == Dim::Kind::kConcat) {
    int64_t base = 0;
    for (const Dim& p : d.parts()) {
      int64_t from = std::max(lo, base), to = std::min(hi, base + p.size());
      if (from < to) kept.push_back(cut_out(p, mesh, from - base, to - from));
      base += p.size();
    }
    return Dim::concat(std::move(kept));
  }
  // Keeps a range within one outer index, or up to three segments: the end of
  // one outer index, whole outer indices, and the start of another one.
  const Dim& outer = d.parts()[0];
  Dim rest = Dim::product({d.parts().begin() + 1, d.parts().end()});
  auto keep = [&](int64_t first, int64_t count, int64_t from, int64_t to) {
    kept.push_back(Dim::product({cut_out(outer, mesh, first, count),
                                 cut_out(rest, mesh, from, to - from)}));
  };
  int64_t inner = rest.size(), first = lo / inner, last = hi / inner;
  if (first == last) {
    keep(first, 1, lo % inner, hi % inner);
  } else {
    if (lo % inner != 0) keep(first++, 1, lo % inner, inner);
    if (first < last) keep(first, last - first, 0, inner);
    if (hi % inner != 0) keep(last, 1, 0, hi % inner);
  }
  return Dim::concat(std::move(kept));
}

}  // namespace

Dim Dim::canonical(const Mesh& mesh) const {
  if (kind_ == Kind::kLeaf) {
    Split s = split_.canonical(mesh, size_);
    // With empty parts, several orders of the axes may give the same parts.
    // Then build() chooses the order.
    if (s.num_axes() < 2 || size_ == 0 || no_part_empty(s, mesh, size_))
      return Dim(size_, std::move(s));
  } else if (size_ == 0) {
    return Dim(0);
  } else if (kind_ == Kind::kProduct) {
    if (auto d = simple_product(*this, mesh)) return *d;
  }
  return build(holders_of(*this, mesh), mesh);
}

std::optional<std::vector<Dim>> Dim::unflatten(
    const Mesh& mesh, const std::vector<int64_t>& sizes) const {
  if (sizes.empty())  // a dimension of size 1 that goes away
    return whole() ? std::optional(std::vector<Dim>{}) : std::nullopt;
  std::vector<Dim> dims;
  if (size_ == 0 || whole()) {
    for (int64_t n : sizes) dims.push_back(Dim(n));
    return dims;
  }
  if (sizes.size() == 1) return std::vector<Dim>{canonical(mesh)};
  Holders rest = holders_of(*this, mesh);
  int64_t inner = size_;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    inner /= sizes[i];
    auto both = cut(rest, inner);
    if (!both) return std::nullopt;
    dims.push_back(build(both->first, mesh));
    rest = std::move(both->second);
  }
  dims.push_back(build(rest, mesh));
  return dims;
}

std::optional<Dim> Dim::slice(const Mesh& mesh, int64_t lo, int64_t n) const {
  return cut_out(*this, mesh, lo, n).canonical(mesh);
}

}  // namespace dtensor
