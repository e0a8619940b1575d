// SPDX-License-Identifier: Apache-2.0
// The layout types against brute force: every mesh of up to 8 ranks and every
// size up to 24; trees, boundaries and texts are sampled. The indices that a
// rank owns are enumerated here one by one, from the definition alone; no code
// under test takes part in that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "dtensor/placement/layout.h"
#include "dtensor/placement/mesh.h"
#include "dtensor/placement/spec.h"
#include "dtensor/placement/split.h"

namespace dtensor {
namespace {

using List = std::vector<int>;  // indices, in local order

constexpr int kMaxRanks = 8;
constexpr int kMaxSize = 24;

// ---------------------------------------------------------------------------
// Failures: counted, and the first few printed.

class Tally {
 public:
  template <class Describe>
  void check(bool ok, const char* what, Describe&& describe) {
    ++cases_;
    if (ok) return;
    if (++bad_ <= 8) ADD_FAILURE() << what << ": " << describe();
  }
  ~Tally() {
    EXPECT_LE(bad_, 8) << "only the first 8 failures are printed";
    EXPECT_GT(cases_, 0);
    testing::Test::RecordProperty("checks", std::to_string(cases_));
  }

 private:
  int64_t cases_ = 0, bad_ = 0;
};

// ---------------------------------------------------------------------------
// The meshes.

struct Grid {
  List sizes;
  Mesh mesh;
  std::vector<List> ranks;  // the coordinates of rank 0, 1, ...
  bool thin = false;        // has an axis of size 1
};

std::vector<Grid> grids() {
  std::vector<List> all;
  for (int a = 1; a <= kMaxRanks; ++a) {
    all.push_back({a});
    for (int b = 1; a * b <= kMaxRanks; ++b) {
      all.push_back({a, b});
      for (int c = 1; a * b * c <= kMaxRanks; ++c) all.push_back({a, b, c});
    }
  }
  std::vector<Grid> out;
  for (const List& sizes : all) {
    Grid g;
    g.sizes = sizes;
    std::vector<MeshAxis> axes;
    g.ranks = {{}};
    for (size_t i = 0; i < sizes.size(); ++i) {
      axes.push_back({std::string(1, static_cast<char>('x' + i)), sizes[i]});
      g.thin |= sizes[i] == 1;
      std::vector<List> longer;
      for (const List& r : g.ranks)
        for (int v = 0; v < sizes[i]; ++v) {
          longer.push_back(r);
          longer.back().push_back(v);
        }
      g.ranks = longer;
    }
    g.mesh = Mesh(axes);
    out.push_back(g);
  }
  return out;
}

const std::vector<Grid>& all_grids() {
  static const auto* g = new std::vector<Grid>(grids());
  return *g;
}

Coord coord(const List& at) {
  Coord c;
  for (size_t i = 0; i < at.size(); ++i) c[static_cast<int>(i)] = at[i];
  return c;
}

// Every ordered choice of axes, the empty one first.
std::vector<List> axis_lists(int num_axes) {
  std::vector<List> out = {{}};
  for (size_t i = 0; i < out.size(); ++i)
    for (int a = 0; a < num_axes; ++a) {
      if (std::find(out[i].begin(), out[i].end(), a) != out[i].end()) continue;
      List longer = out[i];
      longer.push_back(a);
      out.push_back(longer);
    }
  return out;
}

// ---------------------------------------------------------------------------
// The definition: a tree, and the indices that a rank owns of it.

struct Tree {
  enum Kind { kLeaf, kProduct, kConcat } kind = kLeaf;
  int n = 0;  // of a leaf
  List axes;
  int granule = 1;
  List points;  // if not empty, instead of a balanced split
  std::vector<Tree> kids;

  int size() const {
    if (kind == kLeaf) return n;
    int s = kind == kProduct ? 1 : 0;
    for (const Tree& k : kids)
      s = kind == kProduct ? s * k.size() : s + k.size();
    return s;
  }
};

int parts_of(const List& axes, const Grid& g) {
  int p = 1;
  for (int a : axes) p *= g.sizes[static_cast<size_t>(a)];
  return p;
}

int part_of(const List& axes, const Grid& g, const List& at) {
  int i = 0;
  for (int a : axes)
    i = i * g.sizes[static_cast<size_t>(a)] + at[static_cast<size_t>(a)];
  return i;
}

// The part that index x of n lies in: part i begins at floor(i*n/p), so it is
// the last i with i*n < (x+1)*p.
int owner(int x, int n, int p) { return ((x + 1) * p - 1) / n; }

List owned(const Tree& t, const Grid& g, const List& at) {
  List out;
  if (t.kind == Tree::kLeaf) {
    int p = parts_of(t.axes, g), me = part_of(t.axes, g, at);
    for (int x = 0; x < t.n; ++x) {
      bool mine;
      if (t.points.empty())
        mine = owner(x / t.granule, t.n / t.granule, p) == me;
      else
        mine = t.points[static_cast<size_t>(me)] <= x &&
               x < t.points[static_cast<size_t>(me) + 1];
      if (mine) out.push_back(x);
    }
  } else if (t.kind == Tree::kProduct) {
    out = {0};
    for (const Tree& k : t.kids) {
      List inner = owned(k, g, at), next;
      for (int x : out)
        for (int y : inner) next.push_back(x * k.size() + y);
      out = next;
    }
  } else {
    int base = 0;
    for (const Tree& k : t.kids) {
      for (int x : owned(k, g, at)) out.push_back(base + x);
      base += k.size();
    }
  }
  return out;
}

std::string text(const List& v) {
  std::string t = "[";
  for (int x : v) t += (t.size() > 1 ? " " : "") + std::to_string(x);
  return t + "]";
}

std::string text(const Tree& t) {
  if (t.kind == Tree::kLeaf) {
    std::string s = std::to_string(t.n) + "{";
    for (int a : t.axes) s += static_cast<char>('x' + a);
    s += "}";
    if (t.granule != 1) s += "/" + std::to_string(t.granule);
    if (!t.points.empty()) s += "@" + text(t.points);
    return s;
  }
  std::string s = "(";
  for (const Tree& k : t.kids)
    s += (s.size() > 1 ? (t.kind == Tree::kProduct ? " " : "|") : "") + text(k);
  return s + ")";
}

std::string text(const std::vector<Tree>& dims) {
  std::string s;
  for (const Tree& t : dims) s += text(t) + " ";
  return s;
}

Tree leaf(int n, List axes = {}, int granule = 1) {
  Tree t;
  t.n = n;
  t.axes = std::move(axes);
  t.granule = granule;
  return t;
}

Tree leaf_at(List axes, List points) {
  Tree t = leaf(points.back(), std::move(axes));
  t.points = std::move(points);
  return t;
}

Tree node(Tree::Kind kind, std::vector<Tree> kids) {
  Tree t;
  t.kind = kind;
  t.kids = std::move(kids);
  return t;
}

// ---------------------------------------------------------------------------
// The same tree in the code under test, and what it says a rank owns.

std::vector<int64_t> wide(const List& v) { return {v.begin(), v.end()}; }

Dim build(const Tree& t, const Grid& g) {
  if (t.kind == Tree::kLeaf)
    return Dim(t.n, t.points.empty()
                        ? Split::over(t.axes, t.granule)
                        : Split::at(t.axes, wide(t.points), g.mesh));
  std::vector<Dim> kids;
  for (const Tree& k : t.kids) kids.push_back(build(k, g));
  return t.kind == Tree::kProduct ? Dim::product(kids) : Dim::concat(kids);
}

List expand(const IntervalList& list) {
  List out;
  for (const Interval& r : list)
    for (int64_t x = r.lo; x < r.hi; ++x) out.push_back(static_cast<int>(x));
  return out;
}

List indices(const Dim& d, const Grid& g, const List& at) {
  IntervalList list;
  d.intervals(g.mesh, coord(at), list);
  return expand(list);
}

// The flat indices of a region of `shape`, in local order.
List flat(const Region& region, const Shape& shape) {
  List out = {0};
  for (int d = 0; d < shape.size(); ++d) {
    List inner = expand(region[static_cast<size_t>(d)]), next;
    for (int x : out)
      for (int y : inner) next.push_back(x * static_cast<int>(shape[d]) + y);
    out = next;
  }
  return out;
}

// The indices of each rank.
using Owners = std::vector<List>;

Owners owners(const Tree& t, const Grid& g) {
  Owners o;
  for (const List& at : g.ranks) o.push_back(owned(t, g, at));
  return o;
}

Owners owners(const Layout& l, const Grid& g) {
  Owners o;
  Shape shape = l.shape();
  for (const List& at : g.ranks)
    o.push_back(flat(l.region(g.mesh, coord(at)), shape));
  return o;
}

std::string text(const Owners& o) {
  std::string s;
  for (const List& v : o) s += text(v);
  return s;
}

// ---------------------------------------------------------------------------
// Canonical forms and texts.

// The tree that says who owns what index by index: one segment for each index,
// with one part that is not empty. nullopt if there is no such tree: the owners
// of an index are not all ranks with some coordinates in common.
std::optional<Dim> index_by_index(const Owners& o, const Grid& g, int n) {
  std::vector<Dim> segments;
  for (int x = 0; x < n; ++x) {
    std::vector<List> values(g.sizes.size());  // per axis, those that own x
    size_t holders = 0, box = 1;
    for (size_t r = 0; r < o.size(); ++r) {
      if (!std::binary_search(o[r].begin(), o[r].end(), x)) continue;
      ++holders;
      for (size_t a = 0; a < values.size(); ++a)
        if (std::find(values[a].begin(), values[a].end(), g.ranks[r][a]) ==
            values[a].end())
          values[a].push_back(g.ranks[r][a]);
    }
    List axes;
    int parts = 1, mine = 0;
    for (size_t a = values.size(); a-- > 0;) {
      box *= values[a].size();
      if (static_cast<int>(values[a].size()) == g.sizes[a]) continue;
      if (values[a].size() != 1) return std::nullopt;
      axes.push_back(static_cast<int>(a));
      parts *= g.sizes[a];
      mine = mine * g.sizes[a] + values[a][0];
    }
    if (holders != box) return std::nullopt;
    std::vector<int64_t> points(static_cast<size_t>(mine) + 1, 0);
    points.resize(static_cast<size_t>(parts) + 1, 1);
    segments.push_back(Dim(1, Split::at(axes, points, g.mesh)));
  }
  return Dim::concat(segments);
}

// Checks that d has the canonical form of index_by_index(), which depends only
// on the owners. So all trees with the same owners have one form.
void check_one_form(const Dim& d, const Owners& o, const Grid& g,
                    Tally& tally) {
  if (d.size() == 0) return;
  auto again = index_by_index(o, g, static_cast<int>(d.size()));
  auto describe = [&] {
    return g.mesh.to_string() + " " + text(o) + " got " +
           Layout{{d.canonical(g.mesh)}, {}}.to_string(g.mesh) + " and " +
           Layout{{again->canonical(g.mesh)}, {}}.to_string(g.mesh);
  };
  tally.check(again.has_value(), "index by index", [&] { return text(o); });
  if (again)
    tally.check(again->canonical(g.mesh) == d.canonical(g.mesh),
                "equal owners, equal canonical forms", describe);
}

// True if the axes of every leaf come in mesh order.
bool in_mesh_order(const Dim& d) {
  bool rises = true;
  for (int i = 1; i < d.split().num_axes(); ++i)
    rises &= d.split().axis(i - 1) < d.split().axis(i);
  for (const Dim& p : d.parts()) rises &= in_mesh_order(p);
  return rises;
}

void check_text(const Layout& l, const Grid& g, Tally& tally) {
  Layout canonical = l.canonical(g.mesh);
  Shape shape = l.shape();
  bool per_axis = true, leaves = true;
  for (const Dim& d : canonical.dims) {
    per_axis &= in_mesh_order(d);
    leaves &= d.kind() == Dim::Kind::kLeaf;
  }
  for (size_t i = 1; i < canonical.partials.size(); ++i)
    per_axis &= canonical.partials[i - 1].axis < canonical.partials[i].axis;
  using enum Layout::Form;
  std::string by_axis = canonical.to_string(g.mesh, kPerAxis),
              by_dim = canonical.to_string(g.mesh, kPerDim);
  auto describe = [&] {
    return g.mesh.to_string() + " " + by_axis + " and " + by_dim;
  };
  tally.check(by_dim[0] == '[' && (by_axis[0] != '[') == per_axis, "form",
              describe);
  for (const std::string& t : {by_axis, by_dim, l.to_string(g.mesh, kPerAxis),
                               l.to_string(g.mesh, kPerDim)})
    tally.check(parse_layout(t, g.mesh, shape) == canonical, "reads back",
                [&] { return describe() + " from " + t; });
  bool first = per_axis && (leaves || by_axis.size() < by_dim.size());
  tally.check(canonical.to_string(g.mesh) == (first ? by_axis : by_dim),
              "the shorter", describe);
}

// ---------------------------------------------------------------------------
// True if some tree has these owners. `o` holds flat indices of `shape`.
// Sub-trees of different dimensions use different axes, and a concat of single
// indices can say all that one dimension's tree can. So there is a tree exactly
// if, for some distribution of the axes to the dimensions,
//   - a rank has the product of one list per dimension, in local order,
//   - the list depends on the dimension's axes alone,
//   - the ranks that have an index are all those with certain coordinates on
//     some of the dimension's axes.
bool any_tree_says(const Owners& o, const Grid& g, const List& shape) {
  size_t dims = shape.size(), num_axes = g.sizes.size();
  std::vector<std::vector<List>> lists(o.size());  // [rank][dim], not if empty
  for (size_t r = 0; r < o.size(); ++r) {
    if (o[r].empty()) continue;
    lists[r].resize(dims);
    for (int x : o[r])
      for (size_t d = dims; d-- > 0;) {
        lists[r][d].push_back(x % shape[d]);
        x /= shape[d];
      }
    List product = {0};
    for (size_t d = 0; d < dims; ++d) {
      List& l = lists[r][d];
      std::sort(l.begin(), l.end());
      l.erase(std::unique(l.begin(), l.end()), l.end());
      List next;
      for (int x : product)
        for (int y : l) next.push_back(x * shape[d] + y);
      product = next;
    }
    if (product != o[r]) return false;
  }
  size_t combinations = 1;
  for (size_t a = 0; a < num_axes; ++a) combinations *= dims + 1;
  for (size_t code = 0; code < combinations; ++code) {
    std::vector<size_t> dim_of(num_axes);  // `dims` stands for none
    size_t rest = code;
    for (size_t a = 0; a < num_axes; ++a) {
      dim_of[a] = rest % (dims + 1);
      rest /= dims + 1;
    }
    auto key = [&](size_t r, size_t d) {
      List k = g.ranks[r];
      for (size_t a = 0; a < num_axes; ++a)
        if (dim_of[a] != d) k[a] = 0;
      return k;
    };
    bool ok = true;
    std::vector<std::map<List, List>> said(dims);
    for (size_t r = 0; r < o.size() && ok; ++r)
      for (size_t d = 0; d < dims && !o[r].empty(); ++d) {
        auto [it, fresh] = said[d].emplace(key(r, d), lists[r][d]);
        ok &= fresh || it->second == lists[r][d];
      }
    for (size_t r = 0; r < o.size() && ok; ++r) {
      bool has = true;
      for (size_t d = 0; d < dims; ++d) has &= said[d].count(key(r, d)) > 0;
      ok &= has == !o[r].empty();
    }
    for (size_t d = 0; d < dims && ok; ++d)
      for (int x = 0; x < shape[d] && ok; ++x) {
        std::vector<List> holders;
        for (const auto& [k, l] : said[d])
          if (std::count(l.begin(), l.end(), x)) holders.push_back(k);
        size_t cube = 1;
        for (size_t a = 0; a < num_axes; ++a) {
          List values;
          for (const List& k : holders) values.push_back(k[a]);
          std::sort(values.begin(), values.end());
          values.erase(std::unique(values.begin(), values.end()), values.end());
          bool free = values.size() ==
                      static_cast<size_t>(dim_of[a] == d ? g.sizes[a] : 1);
          ok &= values.size() == 1 || free;
          cube *= values.size();
        }
        ok &= cube == holders.size();
      }
    if (ok) return true;
  }
  return false;
}

// ---------------------------------------------------------------------------
// Splits.

std::vector<int> divisors(int n) {
  std::vector<int> d;
  for (int g = 1; g <= std::max(n, 1); ++g)
    if (n % g == 0 && (n > 0 || g <= 3)) d.push_back(g);
  return d;
}

// One Split against the tree that it stands for.
void check_split(const Split& s, const Tree& t, const Grid& g, Tally& tally) {
  auto describe = [&] { return g.mesh.to_string() + " " + text(t); };
  const Mesh& m = g.mesh;
  int p = parts_of(t.axes, g), largest = 0;
  tally.check(s.parts(m) == p, "parts", describe);
  // The parts follow one another, from 0 to n.
  List seen, sizes;
  for (int i = 0; i < p; ++i) {
    Interval r = s.part(m, t.n, i);
    tally.check(r.lo <= r.hi && r.lo == s.boundary(m, t.n, i) &&
                    r.hi == s.boundary(m, t.n, i + 1),
                "part and boundary", describe);
    for (int64_t x = r.lo; x < r.hi; ++x) seen.push_back(static_cast<int>(x));
    sizes.push_back(static_cast<int>(r.size()));
    largest = std::max(largest, sizes.back());
  }
  List want;
  for (int x = 0; x < t.n; ++x) want.push_back(x);
  tally.check(seen == want, "the parts make up [0, n)", describe);
  tally.check(s.largest(m, t.n) == largest, "largest", describe);
  if (t.points.empty()) {
    auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    tally.check(*most - *least <= t.granule, "balanced", describe);
  }
  Split canonical = s.canonical(m, t.n);
  tally.check(canonical.canonical(m, t.n) == canonical, "canonical twice",
              describe);
  for (const List& at : g.ranks) {
    Coord c = coord(at);
    List have = owned(t, g, at);
    tally.check(s.part_of(m, c) == part_of(t.axes, g, at), "part_of", describe);
    tally.check(expand({s.range(m, t.n, c)}) == have, "range", describe);
    tally.check(expand({canonical.range(m, t.n, c)}) == have, "canonical",
                describe);
  }
}

// Popping the last axis is the union over it; each rank's part of the finer
// split is a slice of its part of the coarser one.
void check_pop(const Split& s, const Tree& t, const Grid& g, Tally& tally) {
  if (s.whole()) return;
  auto describe = [&] { return g.mesh.to_string() + " " + text(t); };
  Split coarse = s.popped(g.mesh);
  tally.check(coarse == s.prefix(g.mesh, s.num_axes() - 1), "prefix", describe);
  if (!s.points()) {
    List fewer(t.axes.begin(), t.axes.end() - 1);
    tally.check(coarse == Split::over(fewer, s.granule()),
                "popped is the split over the rest", describe);
  }
  int last = s.axis(s.num_axes() - 1);
  for (const List& at : g.ranks) {
    List all;
    List moving = at;
    for (int v = 0; v < g.sizes[static_cast<size_t>(last)]; ++v) {
      moving[static_cast<size_t>(last)] = v;
      for (int x : owned(t, g, moving)) all.push_back(x);
    }
    tally.check(expand({coarse.range(g.mesh, t.n, coord(at))}) == all,
                "popped is the union", describe);
  }
}

void check_push(const Split& s, const Tree& t, const Grid& g, int axis,
                Tally& tally) {
  auto describe = [&] {
    return g.mesh.to_string() + " " + text(t) + " pushed " +
           std::to_string(axis);
  };
  Split fine = s.pushed(g.mesh, t.n, axis);
  int b = g.sizes[static_cast<size_t>(axis)];
  for (const List& at : g.ranks) {
    List have = owned(t, g, at), part;
    Interval r = fine.range(g.mesh, t.n, coord(at));
    for (int x : have)
      if (r.lo <= x && x < r.hi) part.push_back(x);
    tally.check(expand({r}) == part, "pushed slices inside", describe);
    // pushed() splits a listed part, or a whole dimension, in balance.
    if (s.points() || (s.whole() && t.granule == 1)) {
      List mine;
      int len = static_cast<int>(have.size());
      for (int x = 0; x < len; ++x)
        if (owner(x, len, b) == at[static_cast<size_t>(axis)])
          mine.push_back(have[static_cast<size_t>(x)]);
      tally.check(part == mine, "pushed cuts each part evenly", describe);
    }
  }
  // The new parts, one after the other, are the part that they slice.
  for (const List& at : g.ranks) {
    List all, moving = at;
    for (int v = 0; v < b; ++v) {
      moving[static_cast<size_t>(axis)] = v;
      for (int x : expand({fine.range(g.mesh, t.n, coord(moving))}))
        all.push_back(x);
    }
    tally.check(all == owned(t, g, at), "pushed loses nothing", describe);
  }
  if (!s.points()) {
    List axes = t.axes;
    axes.push_back(axis);
    tally.check(fine == Split::over(axes, s.granule()),
                "pushed is the split over all", describe);
  }
  if (b > 1)
    tally.check(
        fine.popped(g.mesh).canonical(g.mesh, t.n) == s.canonical(g.mesh, t.n),
        "popped undoes pushed", describe);
}

bool contains(const List& v, int x) {
  return std::find(v.begin(), v.end(), x) != v.end();
}

TEST(OracleTest, BalancedSplits) {
  Tally tally;
  for (const Grid& g : all_grids())
    for (const List& axes : axis_lists(static_cast<int>(g.sizes.size())))
      for (int n = 0; n <= kMaxSize; ++n)
        for (int granule : divisors(n)) {
          if (axes.empty() && granule > 1) continue;
          Tree t = leaf(n, axes, granule);
          Split s = Split::over(axes, granule);
          check_split(s, t, g, tally);
          check_pop(s, t, g, tally);
          for (int a = 0; a < static_cast<int>(g.sizes.size()); ++a)
            if (!contains(axes, a)) check_push(s, t, g, a, tally);
          check_text(Layout{{Dim(n, s)}, {}}, g, tally);
          if (!g.thin) check_one_form(Dim(n, s), owners(t, g), g, tally);
        }
}

// Boundaries as another framework lists them: every part but the last has
// ceil(n/p), axis by axis inside the part before.
List ceil_chunks(int n, const List& sizes, size_t from = 0) {
  if (from == sizes.size()) return {0, n};
  int p = sizes[from], chunk = (n + p - 1) / p;
  List points = {0};
  for (int i = 0; i < p; ++i) {
    int lo = std::min(i * chunk, n), hi = std::min(lo + chunk, n);
    List inner = ceil_chunks(hi - lo, sizes, from + 1);
    for (size_t j = 1; j < inner.size(); ++j) points.push_back(lo + inner[j]);
  }
  return points;
}

List random_points(int n, int parts, std::mt19937& rng) {
  List points = {0, n};
  for (int i = 1; i < parts; ++i)
    points.push_back(static_cast<int>(rng() % static_cast<unsigned>(n + 1)));
  std::sort(points.begin(), points.end());
  return points;
}

List sizes_of(const List& axes, const Grid& g) {
  List s;
  for (int a : axes) s.push_back(g.sizes[static_cast<size_t>(a)]);
  return s;
}

TEST(OracleTest, ListedBoundaries) {
  Tally tally;
  std::mt19937 rng(1);
  for (const Grid& g : all_grids())
    for (const List& axes : axis_lists(static_cast<int>(g.sizes.size())))
      for (int n = 0; n <= kMaxSize; ++n) {
        if (axes.empty()) continue;
        int p = parts_of(axes, g);
        std::vector<List> choices = {ceil_chunks(n, sizes_of(axes, g)),
                                     ceil_chunks(n, {p})};
        for (int i = 0; i < 3; ++i) choices.push_back(random_points(n, p, rng));
        for (const List& points : choices) {
          Tree t = leaf_at(axes, points);
          Split s = Split::at(axes, wide(points), g.mesh);
          check_split(s, t, g, tally);
          check_pop(s, t, g, tally);
          for (int a = 0; a < static_cast<int>(g.sizes.size()); ++a)
            if (!contains(axes, a)) check_push(s, t, g, a, tally);
          check_text(Layout{{Dim(n, s)}, {}}, g, tally);
          if (!g.thin) check_one_form(Dim(n, s), owners(t, g), g, tally);
        }
      }
}

// Over one list of axes, equal parts make equal splits, and different ones
// different splits, however they were written.
TEST(OracleTest, EqualPartsAreEqualSpecs) {
  Tally tally;
  std::mt19937 rng(2);
  for (const Grid& g : all_grids())
    for (const List& axes : axis_lists(static_cast<int>(g.sizes.size()))) {
      if (axes.empty()) continue;
      int p = parts_of(axes, g);
      for (int n = 0; n <= kMaxSize; ++n) {
        std::map<Owners, SpecRef> known;
        std::map<SpecRef, Owners> back;
        auto add = [&](const Tree& t, const Dim& d) {
          auto describe = [&] { return g.mesh.to_string() + " " + text(t); };
          const Spec* s = Spec::get(g.mesh, {n}, Layout{{d}, {}}, DType::kF32);
          Owners o = owners(t, g);
          tally.check(known.emplace(o, s).first->second == s,
                      "equal parts, equal specs", describe);
          tally.check(back.emplace(s, o).first->second == o,
                      "equal specs, equal parts", describe);
          tally.check(owners(s->layout(), g) == o, "the spec's parts",
                      describe);
        };
        for (int granule : divisors(n)) {
          Tree t = leaf(n, axes, granule);
          add(t, build(t, g));
          List points;
          for (int i = 0; i <= p; ++i)
            points.push_back(i * (n / granule) / p * granule);
          t = leaf_at(axes, points);
          add(t, build(t, g));
          // The outer of n / granule times a whole granule, as a product.
          if (n == 0) continue;
          t = node(Tree::kProduct, {leaf(n / granule, axes), leaf(granule)});
          add(t, build(t, g));
        }
        for (int i = 0; i < 4; ++i) {
          Tree t = leaf_at(axes, random_points(n, p, rng));
          add(t, build(t, g));
          if (n == 0) continue;
          // Cut in two and laid end to end again.
          int at = static_cast<int>(rng() % static_cast<unsigned>(n + 1));
          Dim d = build(t, g);
          add(t, Dim::concat(
                     {*d.slice(g.mesh, 0, at), *d.slice(g.mesh, at, n - at)}));
        }
      }
    }
}

TEST(OracleTest, CommonPrefix) {
  Tally tally;
  std::mt19937 rng(3);
  for (const Grid& g : all_grids()) {
    if (g.thin) continue;  // canonical splits have no axes of size 1
    auto lists = axis_lists(static_cast<int>(g.sizes.size()));
    for (int n = 0; n <= kMaxSize; ++n) {
      std::vector<Tree> trees;
      for (const List& axes : lists) {
        for (int granule : divisors(n))
          if (!axes.empty() || granule == 1)
            trees.push_back(leaf(n, axes, granule));
        if (axes.empty()) continue;
        List points = random_points(n, parts_of(axes, g), rng);
        trees.push_back(leaf_at(axes, points));
        // Boundaries with the same union over the first axis, and others within
        // it.
        if (axes.size() > 1) {
          points[1] = points[0];
          trees.push_back(leaf_at(axes, points));
        }
      }
      for (const Tree& a : trees)
        for (const Tree& b : trees) {
          // The longest equal start of both axis lists over which the unions
          // over all the other axes agree.
          size_t want = 0;
          for (size_t k = 1; k <= std::min(a.axes.size(), b.axes.size()); ++k) {
            if (a.axes[k - 1] != b.axes[k - 1]) break;
            auto joined = [&](const Tree& t) {
              std::map<int, List> parts;
              List first(t.axes.begin(), t.axes.begin() + static_cast<int>(k));
              for (const List& at : g.ranks)
                for (int x : owned(t, g, at))
                  parts[part_of(first, g, at)].push_back(x);
              for (auto& [i, l] : parts) {
                std::sort(l.begin(), l.end());
                l.erase(std::unique(l.begin(), l.end()), l.end());
              }
              return parts;
            };
            if (joined(a) == joined(b)) want = k;
          }
          Split sa = build(a, g).split(), sb = build(b, g).split();
          tally.check(sa.common_prefix(sb, g.mesh, n) == static_cast<int>(want),
                      "common_prefix", [&] {
                        return g.mesh.to_string() + " " + text(a) + " " +
                               text(b) + " want " + std::to_string(want) +
                               " got " +
                               std::to_string(sa.common_prefix(sb, g.mesh, n));
                      });
        }
    }
  }
}

// ---------------------------------------------------------------------------
// Trees.

// Everything that can be asked of one Dim.
void check_dim(const Dim& d, const Tree& t, const Grid& g, Tally& tally) {
  auto describe = [&] { return g.mesh.to_string() + " " + text(t); };
  Owners want = owners(t, g);
  tally.check(d.size() == t.size(), "size", describe);
  Dim canonical = d.canonical(g.mesh);
  tally.check(canonical.size() == t.size(), "canonical size", describe);
  tally.check(canonical.canonical(g.mesh) == canonical, "canonical twice",
              describe);
  tally.check(canonical.hash() == canonical.canonical(g.mesh).hash(), "hash",
              describe);
  size_t largest = 0;
  for (size_t r = 0; r < want.size(); ++r) {
    Coord c = coord(g.ranks[r]);
    IntervalList list;
    d.intervals(g.mesh, c, list);
    tally.check(expand(list) == want[r], "intervals", describe);
    bool tidy = true;
    for (size_t i = 0; i < list.size(); ++i)
      tidy &=
          list[i].lo < list[i].hi && (i == 0 || list[i - 1].hi < list[i].lo);
    tally.check(tidy, "ranges are not empty and not adjacent", describe);
    tally.check(indices(canonical, g, g.ranks[r]) == want[r], "canonical",
                describe);
    tally.check(length(list) == static_cast<int64_t>(want[r].size()), "length",
                describe);
    tally.check(d.local_size(g.mesh, c) == length(list), "local_size",
                describe);
    largest = std::max(largest, want[r].size());
  }
  tally.check(d.largest(g.mesh) == static_cast<int64_t>(largest), "largest",
              describe);
  tally.check(canonical.largest(g.mesh) == static_cast<int64_t>(largest),
              "largest of canonical", describe);
}

void check_slice(const Dim& d, const Tree& t, const Grid& g, int lo, int n,
                 Tally& tally) {
  auto describe = [&] {
    return g.mesh.to_string() + " " + text(t) + " from " + std::to_string(lo) +
           " " + std::to_string(n) + " of them";
  };
  auto part = d.slice(g.mesh, lo, n);
  tally.check(part.has_value(), "slice", describe);
  if (!part) return;
  tally.check(part->size() == n, "slice's size", describe);
  for (const List& at : g.ranks) {
    List want;
    for (int x : owned(t, g, at))
      if (lo <= x && x < lo + n) want.push_back(x - lo);
    tally.check(indices(*part, g, at) == want, "slice keeps its owners",
                describe);
  }
}

// Every ordered factorisation of n into at most `most` sizes.
void factorise(int n, int most, List& have, std::vector<List>& out) {
  if (most == 1) {
    have.push_back(n);
    out.push_back(have);
    have.pop_back();
    return;
  }
  for (int f = 1; f <= n; ++f) {
    if (n % f != 0) continue;
    have.push_back(f);
    factorise(n / f, most - 1, have, out);
    have.pop_back();
  }
}

std::vector<List> factorisations(int n, int count) {
  std::vector<List> out;
  List have;
  factorise(n, count, have, out);
  return out;
}

// Every way to hand ordered lists of different axes to `dims` dimensions.
std::vector<std::vector<List>> assignments(int num_axes, int dims) {
  std::vector<std::vector<List>> out;
  std::function<void(std::vector<List>&)> go = [&](std::vector<List>& now) {
    if (static_cast<int>(now.size()) == dims) {
      out.push_back(now);
      return;
    }
    for (const List& axes : axis_lists(num_axes)) {
      bool fresh = true;
      for (const List& other : now)
        for (int a : axes) fresh &= !contains(other, a);
      if (!fresh) continue;
      now.push_back(axes);
      go(now);
      now.pop_back();
    }
  };
  std::vector<List> now;
  go(now);
  return out;
}

Shape shape_of(const List& sizes) {
  Shape s;
  for (int x : sizes) s.push_back(x);
  return s;
}

struct Views {
  int64_t asked = 0, refused = 0;
};

// Checks view_layout() both ways: a view has the same flat elements in the same
// order; if it is refused, no tree has these owners.
std::optional<Layout> check_view(const Layout& from, const Owners& want,
                                 const Grid& g, const List& to, Views& count,
                                 Tally& tally) {
  auto describe = [&] {
    return g.mesh.to_string() + " " + to_string(from.shape()) +
           from.to_string(g.mesh) + " as " + text(to) + " owners " + text(want);
  };
  auto view = view_layout(from, g.mesh, shape_of(to));
  ++count.asked;
  if (view) {
    tally.check(view->shape() == shape_of(to), "the view's shape", describe);
    tally.check(owners(*view, g) == want, "a view has the same elements",
                [&] { return describe() + " got " + view->to_string(g.mesh); });
    return view;
  }
  ++count.refused;
  tally.check(!any_tree_says(want, g, to), "refused, but there is a tree",
              describe);
  return view;
}

// Every product of leaves, its flattening, its slices, and every other shape
// of the same elements.
TEST(OracleTest, ProductsAndViews) {
  Tally tally;
  Views direct, again;
  std::map<int, std::vector<List>> shapes;  // all of up to 3 dimensions
  for (int n = 1; n <= kMaxSize; ++n)
    for (int count = 1; count <= 3; ++count)
      for (const List& f : factorisations(n, count)) shapes[n].push_back(f);
  std::mt19937 rng(4);
  for (const Grid& g : all_grids()) {
    // Axes of size 1 change nothing about the others: a sample of them.
    unsigned every = !g.thin ? 1 : g.sizes.size() == 3 ? 40 : 4;
    for (int n = 1; n <= kMaxSize; ++n)
      for (const List& sizes : shapes[n]) {
        int dims = static_cast<int>(sizes.size());
        for (const auto& split :
             assignments(static_cast<int>(g.sizes.size()), dims)) {
          if (rng() % every != 0) continue;
          std::vector<Tree> trees;
          for (int d = 0; d < dims; ++d) {
            auto i = static_cast<size_t>(d);
            auto granules = divisors(sizes[i]);
            int granule = rng() % 4 == 0 && !split[i].empty()
                              ? granules[rng() % granules.size()]
                              : 1;
            trees.push_back(
                rng() % 8 == 0 && !split[i].empty()
                    ? leaf_at(
                          split[i],
                          random_points(sizes[i], parts_of(split[i], g), rng))
                    : leaf(sizes[i], split[i], granule));
          }
          Tree t = node(Tree::kProduct, trees);
          Dim d = build(t, g);
          check_dim(d, t, g, tally);
          int lo = static_cast<int>(rng() % static_cast<unsigned>(n + 1));
          int len = static_cast<int>(rng() % static_cast<unsigned>(n - lo + 1));
          check_slice(d, t, g, lo, len, tally);

          Layout layout;
          for (const Tree& k : trees) layout.dims.push_back(build(k, g));
          Owners want = owners(t, g);
          tally.check(owners(layout, g) == want, "region of a layout",
                      [&] { return g.mesh.to_string() + " " + text(trees); });
          if (rng() % 8 == 0) {
            check_one_form(d, want, g, tally);
            check_text(layout, g, tally);
            check_text(Layout{{d}, {}}, g, tally);
          }
          // A flattened layout is a product: it always exists.
          auto line = check_view(layout, want, g, {n}, direct, tally);
          if (!line) continue;
          const auto& to = shapes[n];
          for (const List& shape : to) {
            if (g.thin && rng() % 3 != 0) continue;
            check_view(layout, want, g, shape, direct, tally);
            auto v = check_view(*line, want, g, shape, again, tally);
            // View it again in its first shape.
            if (v)
              tally.check(
                  check_view(*v, want, g, sizes, again, tally).has_value(),
                  "a view goes back", [&] {
                    return g.mesh.to_string() + " " + text(trees) + " as " +
                           text(shape) + ": " + v->to_string(g.mesh);
                  });
          }
        }
      }
  }
  EXPECT_GT(direct.asked - direct.refused, 1000);
  EXPECT_GT(direct.refused, 1000);
  RecordProperty("views", std::to_string(direct.asked + again.asked));
  RecordProperty("refused", std::to_string(direct.refused + again.refused));
}

// A random tree of `size` indices over some of `axes`.
Tree random_tree(int size, const List& axes, const Grid& g, int depth,
                 std::mt19937& rng) {
  auto pick = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  size_t kind = depth == 0 ? 0 : pick(4);
  if (kind <= 1 || size < 2) {
    List mine;
    for (int a : axes)
      if (pick(3) != 0)
        mine.insert(mine.begin() + static_cast<int>(pick(mine.size() + 1)), a);
    if (mine.empty()) return leaf(size);
    if (pick(4) == 0)
      return leaf_at(mine, random_points(size, parts_of(mine, g), rng));
    auto granules = divisors(size);
    return leaf(size, mine, pick(2) ? 1 : granules[pick(granules.size())]);
  }
  if (kind == 2) {
    auto f = factorisations(size, 2 + static_cast<int>(pick(2)));
    const List& sizes = f[pick(f.size())];
    std::vector<List> given(sizes.size());
    for (int a : axes) given[pick(given.size())].push_back(a);
    std::vector<Tree> kids;
    for (size_t i = 0; i < sizes.size(); ++i)
      kids.push_back(random_tree(sizes[i], given[i], g, depth - 1, rng));
    return node(Tree::kProduct, kids);
  }
  List points = random_points(size, 2 + static_cast<int>(pick(2)), rng);
  std::vector<Tree> kids;
  bool repeat = pick(3) == 0 && size % 2 == 0;
  if (repeat) {  // q|k of one kind
    Tree t = random_tree(size / 2, axes, g, depth - 1, rng);
    return node(Tree::kConcat, {t, t});
  }
  for (size_t i = 1; i < points.size(); ++i)
    kids.push_back(
        random_tree(points[i] - points[i - 1], axes, g, depth - 1, rng));
  return node(Tree::kConcat, kids);
}

List all_axes(const Grid& g) {
  List axes;
  for (size_t a = 0; a < g.sizes.size(); ++a)
    axes.push_back(static_cast<int>(a));
  return axes;
}

TEST(OracleTest, RandomTrees) {
  Tally tally;
  Views count;
  std::mt19937 rng(5);
  for (int i = 0; i < 40000; ++i) {
    const Grid& g = all_grids()[rng() % all_grids().size()];
    int n = static_cast<int>(rng() % (kMaxSize + 1));
    Tree t = random_tree(n, all_axes(g), g, 3, rng);
    Dim d = build(t, g);
    check_dim(d, t, g, tally);
    Owners want = owners(t, g);
    check_one_form(d, want, g, tally);
    check_text(Layout{{d}, {}}, g, tally);
    int lo = 0, len = 0;
    for (int k = 0; k < 2; ++k) {
      lo = static_cast<int>(rng() % static_cast<unsigned>(n + 1));
      len = static_cast<int>(rng() % static_cast<unsigned>(n - lo + 1));
      check_slice(d, t, g, lo, len, tally);
    }
    if (n == 0) continue;
    // The slices laid end to end again.
    std::vector<Dim> pieces;
    for (auto [from, to] : {std::pair(0, lo), {lo, lo + len}, {lo + len, n}})
      pieces.push_back(*d.slice(g.mesh, from, to - from));
    tally.check(Dim::concat(pieces).canonical(g.mesh) == d.canonical(g.mesh),
                "a cat of slices is the whole",
                [&] { return g.mesh.to_string() + " " + text(t); });
    Layout layout{{d}, {}};
    for (int count_of = 2; count_of <= 3; ++count_of) {
      auto f = factorisations(n, count_of);
      const List& sizes = f[rng() % f.size()];
      auto view = check_view(layout, want, g, sizes, count, tally);
      if (view)
        tally.check(check_view(*view, want, g, {n}, count, tally).has_value(),
                    "a view goes back",
                    [&] { return g.mesh.to_string() + " " + text(t); });
    }
  }
  RecordProperty("views", std::to_string(count.asked));
  RecordProperty("refused", std::to_string(count.refused));
  EXPECT_GT(count.asked - count.refused, 10000);
  EXPECT_GT(count.refused, 5000);
}

// Segments of different trees, as `cat` lays them end to end, seen as every
// other shape: their ends need not be multiples of the inner sizes.
TEST(OracleTest, CatsAndViews) {
  Tally tally;
  Views count;
  std::mt19937 rng(7);
  for (int i = 0; i < 25000; ++i) {
    const Grid& g = all_grids()[rng() % all_grids().size()];
    // Rows of one tree, cut anywhere and laid end to end, with other rows.
    int inner = static_cast<int>(1 + rng() % 6);
    int rows = static_cast<int>(2 + rng() % (kMaxSize / inner - 1));
    List axes = all_axes(g), outside, inside;
    for (int a : axes) (rng() % 2 ? outside : inside).push_back(a);
    Tree t = node(Tree::kProduct, {random_tree(rows, outside, g, 2, rng),
                                   random_tree(inner, inside, g, 1, rng)});
    int n = rows * inner;
    Dim d = build(t, g);
    std::vector<Dim> pieces;
    List points = random_points(n, 3, rng);
    for (size_t k = 1; k < points.size(); ++k)
      pieces.push_back(
          *d.slice(g.mesh, points[k - 1], points[k] - points[k - 1]));
    Tree more = random_tree(inner, axes, g, 1, rng);
    bool longer = rng() % 2;
    if (longer) {
      pieces.push_back(build(more, g));
      t = node(Tree::kConcat, {t, more});
      n += inner;
    }
    Dim cat = Dim::concat(pieces);
    check_dim(cat, t, g, tally);
    Owners want = owners(t, g);
    check_one_form(cat, want, g, tally);
    Layout layout{{cat}, {}};
    auto view = check_view(layout, want, g, {n / inner, inner}, count, tally);
    if (!longer)
      tally.check(view.has_value(), "rows are found again",
                  [&] { return g.mesh.to_string() + " " + text(t); });
    auto f = factorisations(n, 3);
    check_view(layout, want, g, f[rng() % f.size()], count, tally);
  }
  RecordProperty("views", std::to_string(count.asked));
  RecordProperty("refused", std::to_string(count.refused));
}

// Layouts of up to three dimensions and partials, in both forms.
TEST(OracleTest, Texts) {
  Tally tally;
  std::mt19937 rng(8);
  for (int i = 0; i < 20000; ++i) {
    const Grid& g = all_grids()[rng() % all_grids().size()];
    size_t dims = rng() % 4;
    std::vector<List> given(dims);
    Layout l;
    for (int a : all_axes(g)) {
      size_t to = rng() % (dims + 2);
      if (to < dims)
        given[to].push_back(a);
      else if (to == dims)
        l.partials.insert(l.partials.begin() +
                              static_cast<int>(rng() % (l.partials.size() + 1)),
                          {a, static_cast<ReduceOp>(rng() % 8)});
    }
    for (const List& axes : given)
      l.dims.push_back(
          build(random_tree(static_cast<int>(rng() % 13), axes, g, 2, rng), g));
    check_text(l, g, tally);
  }
}

// Layouts of two dimensions over disjoint axes, in pairs: how much they share.
TEST(OracleTest, Overlap) {
  Tally tally;
  std::mt19937 rng(6);
  for (int i = 0; i < 20000; ++i) {
    const Grid& g = all_grids()[rng() % all_grids().size()];
    List sizes = {static_cast<int>(1 + rng() % 6),
                  static_cast<int>(1 + rng() % 6)};
    std::vector<std::vector<Tree>> trees(2);
    std::vector<Layout> layouts(2);
    for (size_t k = 0; k < 2; ++k)
      for (size_t d = 0; d < 2; ++d) {
        List axes;
        for (size_t a = 0; a < g.sizes.size(); ++a)
          if (a % 2 == (d + k) % 2) axes.push_back(static_cast<int>(a));
        trees[k].push_back(random_tree(sizes[d], axes, g, 2, rng));
        layouts[k].dims.push_back(build(trees[k].back(), g));
      }
    auto describe = [&] {
      return g.mesh.to_string() + " " + text(trees[0]) + " with " +
             text(trees[1]);
    };
    const Spec* spec =
        Spec::get(g.mesh, shape_of(sizes), layouts[0], DType::kF32);
    int64_t largest = 0;
    for (const List& ra : g.ranks) {
      Region a = layouts[0].region(g.mesh, coord(ra));
      List fa = owned(node(Tree::kProduct, trees[0]), g, ra);
      tally.check(volume(a) == static_cast<int64_t>(fa.size()), "volume",
                  describe);
      Shape local{static_cast<int64_t>(owned(trees[0][0], g, ra).size()),
                  static_cast<int64_t>(owned(trees[0][1], g, ra).size())};
      tally.check(local_shape(a) == local, "local_shape", describe);
      tally.check(spec->local_shape(coord(ra)) == local, "Spec::local_shape",
                  describe);
      tally.check(flat(spec->region(coord(ra)), shape_of(sizes)) == fa,
                  "Spec::region", describe);
      largest = std::max(largest, volume(a));
      for (const List& rb : g.ranks) {
        List fb = owned(node(Tree::kProduct, trees[1]), g, rb), both;
        std::set_intersection(fa.begin(), fa.end(), fb.begin(), fb.end(),
                              std::back_inserter(both));
        tally.check(overlap(a, layouts[1].region(g.mesh, coord(rb))) ==
                        static_cast<int64_t>(both.size()),
                    "overlap", describe);
      }
    }
    tally.check(spec->largest_part_bytes() == 4 * largest, "largest_part_bytes",
                describe);
  }
}

// The brute force itself, on cases that were worked out by hand.
TEST(OracleTest, BruteForceKnowsTheKnownCases) {
  auto grid = [](const List& sizes) {
    for (const Grid& g : all_grids())
      if (g.sizes == sizes) return g;
    return Grid{};
  };
  Grid two = grid({2}), three = grid({3}), four = grid({4}),
       pair = grid({2, 2});
  EXPECT_EQ(owners(leaf(5, {0, 1}), pair), (Owners{{0}, {1}, {2}, {3, 4}}));
  EXPECT_EQ(owners(leaf(5, {0}), four), (Owners{{0}, {1}, {2}, {3, 4}}));
  EXPECT_EQ(ceil_chunks(5, {4}), (List{0, 2, 4, 5, 5}));
  EXPECT_EQ(ceil_chunks(5, {2, 2}), (List{0, 2, 3, 4, 5}));
  EXPECT_EQ(ceil_chunks(8, {3, 2}), (List{0, 2, 3, 5, 6, 7, 8}));
  Tree interleaved = node(Tree::kProduct, {leaf(2), leaf(4, {0})});
  EXPECT_EQ(owners(interleaved, two), (Owners{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_FALSE(any_tree_says(owners(leaf(6, {0}), three), three, {2, 3}));
  EXPECT_TRUE(any_tree_says(owners(leaf(6, {0}), three), three, {3, 2}));
  EXPECT_TRUE(any_tree_says(owners(interleaved, two), two, {4, 2}));
  EXPECT_FALSE(any_tree_says(owners(interleaved, two), two, {8, 2}));
  // One element each: every rank's set is a product, but one axis cannot split
  // [2, 2].
  EXPECT_FALSE(any_tree_says(owners(leaf(4, {0}), four), four, {2, 2}));
  EXPECT_TRUE(any_tree_says(owners(leaf(4, {0, 1}), pair), pair, {2, 2}));
  EXPECT_EQ(all_grids().size(), 66u);
}

}  // namespace
}  // namespace dtensor
