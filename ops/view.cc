// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/view.h"

#include <algorithm>
#include <numeric>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/index_op.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {
namespace {

struct ViewArgs {
  static constexpr Fields kFields = {"shape"};
  Shape shape;
};
struct PermuteArgs {
  static constexpr Fields kFields = {"order"};
  Shape order;
};

// Calls fn(layout) for layouts similar to that of `s`, some of which can be
// viewed as `to`. The least changed layouts come first. In each of them, an
// axis stays on its dimension, is dropped, or goes to another dimension, behind
// the axes there. Changed dimensions (and in a second round, all split ones)
// are cut evenly, in granules that fit the sizes of `to`.
template <class Fn>
void for_neighbours(const Spec* s, const Shape& to, Fn&& fn) {
  const int n = s->ndim();
  // An axis, and the dimensions that it may split: the one that it splits in s,
  // none (the number n), or any other.
  struct Mover {
    int axis;
    std::vector<int> places;
    size_t at = 0;
    int place() const { return places[at]; }
  };
  std::vector<Mover> movers;
  for (int a = 0; a < s->mesh().num_axes(); ++a)
    for (int d = 0; d < n; ++d) {
      if (!(s->dim(d).axes() >> a & 1)) continue;
      Mover m{a, {d, n}};
      for (int other = 0; other < n; ++other)
        if (other != d) m.places.push_back(other);
      movers.push_back(std::move(m));
    }
  // Each set has one granule for each dimension of s. With the set for k, all
  // parts begin at multiples of `unit`, the number of elements in an index of
  // dimension k - 1 of `to`. `below` is the number of elements in an index of
  // dimension d of s.
  const std::vector<int64_t> ones(static_cast<size_t>(n), 1);
  std::vector<std::vector<int64_t>> granules{ones};
  for (int64_t unit = 1, k = to.size() - 1; k > 0; --k) {
    unit *= to[static_cast<int>(k)];
    std::vector<int64_t> g = ones;
    int64_t below = 1;
    for (int d = n - 1; d >= 0; below *= s->shape()[d--])
      g[static_cast<size_t>(d)] = unit / std::gcd(unit, below);
    if (g != granules.back()) granules.push_back(std::move(g));
  }
  auto offer = [&](const std::vector<int64_t>& granule, bool recut) {
    Layout l = s->layout();
    for (int d = 0; d < n; ++d) {
      Dim& dim = l.dims[static_cast<size_t>(d)];
      const AxisMask old = dim.axes();
      AxisMask now = 0;
      for (const Mover& m : movers)
        if (m.place() == d) now |= AxisMask{1} << m.axis;
      if (now == old && !(recut && old)) continue;
      if (dim.size() % granule[static_cast<size_t>(d)] != 0) return;
      // First the axes of the dimension's Split in their order, if its Dim is a
      // leaf. Then the other axes that split it before, then new ones.
      std::vector<int> order;
      for (int a : dim.split().axes())
        if (now >> a & 1) order.push_back(a);
      for (bool fresh : {false, true})
        for (const Mover& m : movers)
          if (m.place() == d && fresh == !(old >> m.axis & 1) &&
              !(dim.split().mask() >> m.axis & 1))
            order.push_back(m.axis);
      dim =
          Dim(dim.size(), Split::over(order, granule[static_cast<size_t>(d)]));
    }
    fn(l);
  };
  for (;;) {
    for (bool recut : {false, true})
      for (const auto& granule : granules) offer(granule, recut);
    size_t i = movers.size();
    while (i > 0 && ++movers[i - 1].at == movers[i - 1].places.size())
      movers[--i].at = 0;
    if (i == 0) return;
  }
}

// If a view of `like` in the shape of `s` has the layout of `s`, returns the
// layout of `like`, with the partials of `s`. Otherwise returns nullopt.
std::optional<Layout> returned(const Spec* s, const Spec* like) {
  if (!like) return std::nullopt;
  auto there = view_layout(like->layout(), s->mesh(), s->shape());
  if (!there || there->canonical(s->mesh()).dims != s->layout().dims ||
      (like->split_axes() & s->partial_axes()))
    return std::nullopt;
  Layout l = like->layout();
  l.partials = s->layout().partials;
  return l;
}

// attrs.like, if set, is a spec in the new shape; its layout is used if
// possible. With `moves`, the input may move to a layout that can be viewed;
// otherwise Error is thrown if its own layout cannot be viewed.
class View : public IndexOp {
 public:
  explicit View(bool moves)
      : IndexOp(moves ? "reshape" : "view", false), moves_(moves) {}
  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    const Mesh& mesh = s->mesh();
    const Shape& to = attrs.as<ViewArgs>().shape;
    DT_CHECK(numel(to) == numel(s->shape()), name(),
             "{} has {} elements, but {} has {}; write a shape with as many",
             s->to_string(), numel(s->shape()), to_string(to), numel(to));
    auto seen = [&](const Spec* from, const Layout& l) {
      return Candidate{{from}, {Spec::get(mesh, to, l, s->dtype())}};
    };
    auto layout = returned(s, attrs.like);
    if (!layout) layout = view_layout(s->layout(), mesh, to);
    if (layout && (moves_ || s == in[0].spec)) return {seen(s, *layout)};
    std::vector<Candidate> list;
    if (layout) {
      list.push_back(seen(s, *layout));
    } else {
      for_neighbours(s, to, [&](const Layout& l) {
        const Spec* near = s->with(l);
        if (auto there = view_layout(near->layout(), mesh, to))
          list.push_back(seen(near, *there));
      });
    }
    if (!moves_) {
      const OpInput free{in[0].spec};
      const Choice nearest = choose(list, {&free, 1}, facts().work,
                                    RankContext::current().planner, name());
      fail(name(),
           "{} cannot be viewed as {} in its layout; write "
           "x.redistribute(\"{}\") before it, or reshape(), which does that",
           in[0].spec->to_string(), to_string(to),
           nearest.in[0]->layout().to_string(mesh));
    }
    return list;
  }
  void compute(Compute& c) const override {
    c.out[0] = c.in[0].reshape(c.decision.out_local[0]);
  }
  InputGradients gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override {
    Sample merge, cut, across;
    merge.inputs = {{Shape{2, 3, 5}}};
    merge.attrs = ViewArgs{{6, 5}};
    cut.inputs = {{Shape{12, 3}}};
    cut.attrs = ViewArgs{{4, 3, 3}};
    across.inputs = {{Shape{4, 1, 6}}};
    across.attrs = ViewArgs{{8, 3}};
    return {merge, cut, across};
  }

 private:
  bool moves_;
};

const View& view_op(bool moves) {
  static const View stays(false), moving(true);
  return moves ? moving : stays;
}

InputGradients View::gradient(const GradientCall& g) const {
  const Spec* in = g.decision->in[0];
  Attrs attrs = ViewArgs{in->shape()};
  attrs.like = in;
  return {apply1(view_op(true), g.cotangents.first(1), attrs)};
}

class Permute : public IndexOp {
 public:
  Permute() : IndexOp("permute", false) {}
  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    const Shape& order = attrs.as<PermuteArgs>().order;
    DT_CHECK(
        order.size() == s->ndim(), name(),
        "the order has size {}, but {} has ndim() = {}; name each dimension "
        "once",
        order.size(), s->to_string(), s->ndim());
    Layout l;
    Shape shape;
    l.partials = s->layout().partials;
    for (int64_t d : order) {
      const int at = normalize_dim(d, s->ndim(), name());
      l.dims.push_back(s->dim(at));
      shape.push_back(s->shape()[at]);
    }
    return {{{s}, {Spec::get(s->mesh(), shape, l, s->dtype())}}};
  }
  void compute(Compute& c) const override {
    c.out[0] = c.in[0].permute(c.attrs.as<PermuteArgs>().order);
  }
  InputGradients gradient(const GradientCall& g) const override {
    const Shape& order = g.attrs.as<PermuteArgs>().order;
    std::vector<int> inverse(static_cast<size_t>(order.size()));
    for (int d = 0; d < order.size(); ++d)
      inverse[static_cast<size_t>(order[d])] = d;
    return {permute(g.cotangents[0], inverse)};
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{5, 3, 2}}};
    s.attrs = PermuteArgs{{2, 0, 1}};
    return {s};
  }
};

const Permute& permute_op() {
  static const Permute op;
  return op;
}

Shape resolve_shape(const DistTensor& x, const Shape& shape,
                    std::string_view op) {
  Shape s = shape;
  int64_t known = 1;
  int open = -1;
  for (int d = 0; d < s.size(); ++d) {
    if (s[d] == -1) {
      DT_CHECK(open < 0, op, "{} has more than one -1; write -1 once",
               to_string(shape));
      open = d;
    } else {
      known *= s[d];
    }
  }
  int64_t n = numel(x.shape());
  if (open >= 0 && known > 0) s[open] = n / known;
  bool fits = open < 0 || known > 0;
  for (int64_t size : s) fits &= size >= 0;
  DT_CHECK(fits && numel(s) == n, op,
           "{} cannot take the shape {}; write sizes of at least 0 whose "
           "product is {}",
           x.spec()->to_string(), to_string(shape), n);
  return s;
}

}  // namespace

static const OpFamily kFamily("view", [] {
  return OpList{&view_op(false), &view_op(true), &permute_op()};
});

static DistTensor shaped(const DistTensor& x, const Shape& shape, bool moves) {
  const Op& op = view_op(moves);
  check_defined(op.name(), x);
  Shape s = resolve_shape(x, shape, op.name());
  return s == x.shape() ? alias(x) : apply1(op, x, ViewArgs{s});
}

DistTensor view(const DistTensor& x, const Shape& shape) {
  return shaped(x, shape, false);
}

DistTensor reshape(const DistTensor& x, const Shape& shape) {
  return shaped(x, shape, true);
}

DistTensor permute(const DistTensor& x, const std::vector<int>& order) {
  check_defined("permute", x);
  DT_CHECK(static_cast<int>(order.size()) == x.ndim(), "permute",
           "the order has size {}, but {} has ndim() = {}; name each dimension "
           "once",
           order.size(), x.spec()->to_string(), x.ndim());
  PermuteArgs args;
  uint32_t seen = 0;
  bool identity = true;
  for (int d : order) {
    int at = normalize_dim(d, x.ndim(), "permute");
    DT_CHECK(!(seen >> at & 1), "permute",
             "dimension {} is named twice; name it once", d);
    seen |= 1u << at;
    identity &= at == args.order.size();
    args.order.push_back(at);
  }
  return identity ? alias(x) : apply1(permute_op(), x, args);
}

DistTensor transpose(const DistTensor& x, int a, int b) {
  check_defined("transpose", x);
  // As in torch, a scalar has a dimension 0.
  const auto is_first = [](int d) { return d == 0 || d == -1; };
  if (x.ndim() == 0 && is_first(a) && is_first(b)) return alias(x);
  std::vector<int> order;
  for (int d = 0; d < x.ndim(); ++d) order.push_back(d);
  std::swap(
      order[static_cast<size_t>(normalize_dim(a, x.ndim(), "transpose"))],
      order[static_cast<size_t>(normalize_dim(b, x.ndim(), "transpose"))]);
  return permute(x, order);
}

DistTensor squeeze(const DistTensor& x, const std::vector<int>& dims) {
  check_defined("squeeze", x);
  std::vector<bool> named(static_cast<size_t>(x.ndim()), false);
  for (int d : dims)
    if (x.ndim() > 0 || (d != 0 && d != -1))
      named[static_cast<size_t>(normalize_dim(d, x.ndim(), "squeeze"))] = true;
  Shape s;
  for (int d = 0; d < x.ndim(); ++d)
    if (!named[static_cast<size_t>(d)] || x.size(d) != 1)
      s.push_back(x.size(d));
  return reshape(x, s);
}

DistTensor squeeze(const DistTensor& x, int dim) {
  return squeeze(x, std::vector<int>{dim});
}

DistTensor squeeze(const DistTensor& x) {
  check_defined("squeeze", x);
  std::vector<int> all;
  for (int d = 0; d < x.ndim(); ++d) all.push_back(d);
  return squeeze(x, all);
}

DistTensor unsqueeze(const DistTensor& x, int dim) {
  check_defined("unsqueeze", x);
  Shape s = x.shape();
  s.insert(normalize_dim(dim, x.ndim() + 1, "unsqueeze"), 1);
  return view(x, s);
}

}  // namespace dtensor
