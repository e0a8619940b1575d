#include "ops/view.h"

#include <algorithm>

#include "ops/contraction.h"
#include "placement/error.h"

namespace dtensor {
namespace {

// The input as an operator that only renames indices can take it: pairs
// (sum, count) are settled first.
const Spec* settled(const Spec* s) {
  if (s->components() == 1) return s;
  Layout l = s->layout();
  std::erase_if(l.partials,
                [](const Partial& p) { return components(p.op) > 1; });
  return s->with(l);
}

// An operator that decides its layouts without a rule. It renames indices, so
// partials of every kind pass.
class IndexOp : public Op {
 public:
  using Op::Op;
  BoundRule bind(const std::vector<Shape>&, const Attrs&) const override {
    fail(name(), "decides its layouts without a rule");
  }
  bool saves_inputs() const override { return false; }
};

// --- view: attrs.i is the new shape ------------------------------------------
class View : public IndexOp {
 public:
  View() : IndexOp("view") {}
  std::optional<Decision> decide(std::span<const OpInput> in,
                                 const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    Shape to(attrs.i);
    DT_CHECK(numel(to) == numel(s->shape()), name(),
             "{} has {} elements and {} has {}; write a shape of as many",
             s->to_string(), numel(s->shape()), to_string(to), numel(to));
    auto layout = view_layout(s->layout(), s->mesh(), to);
    DT_CHECK(
        layout.has_value(), name(),
        "{} cannot be seen as {} where it lies; write x.redistribute(\"{}\") "
        "ahead of it, or reshape(), which does that",
        s->to_string(), to_string(to),
        movable(s, to)->layout().to_string(s->mesh()));
    Decision d;
    d.in = {s};
    d.out = {Spec::get(s->mesh(), to, *layout, s->dtype())};
    return d;
  }
  bool allocates() const override { return false; }
  void compute(Compute& c) const override {
    c.out[0] = c.in[0].reshape(c.decision.out_local[0]);
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    return {reshape(g.cotangents[0], g.decision->in[0]->shape())};
  }
  std::vector<Sample> samples() const override {
    Sample merge, cut;
    merge.inputs = {{Shape{2, 3, 5}}};
    merge.attrs.i = {6, 5};
    cut.inputs = {{Shape{12, 3}}};
    cut.attrs.i = {4, 3, 3};
    return {merge, cut};
  }

  // The nearest layout of `s` that can be seen as `to`: the one that is
  // cheapest to reach among those that split over fewer axes, or the same
  // ones at other boundaries.
  static const Spec* movable(const Spec* s, const Shape& to) {
    Planner& planner = RankContext::current().planner;
    const Mesh& mesh = s->mesh();
    const Spec* best = nullptr;
    int64_t price = 0;
    auto offer = [&](const Layout& l) {
      if (!view_layout(l.canonical(mesh), mesh, to)) return;
      const Spec* candidate = s->with(l);
      int64_t p = planner.plan(s, candidate).time_ps;
      if (!best || p < price) best = candidate, price = p;
    };
    AxisMask split = s->split_axes();
    for (AxisMask drop = split;; drop = (drop - 1) & split) {
      Layout l = s->layout();
      for (Dim& d : l.dims) {
        if (!(d.axes() & drop)) continue;
        std::vector<int> kept;
        if (d.kind() == Dim::Kind::kLeaf)
          for (int a : d.split().axes())
            if (!(drop >> a & 1)) kept.push_back(a);
        d = Dim(d.size(), Split::over(kept));
      }
      offer(l);
      if (drop == 0) break;
    }
    // The same axes, with a granule that the new sizes divide.
    for (int d = 0; d < s->ndim(); ++d) {
      const Dim& dim = s->dim(d);
      if (dim.whole() || dim.kind() != Dim::Kind::kLeaf) continue;
      int64_t granule = 1;
      for (int k = to.size() - 1; k >= 0; --k) {
        granule *= std::max<int64_t>(to[k], 1);
        if (granule > dim.size() || dim.size() % granule) break;
        Layout l = s->layout();
        l.dims[static_cast<size_t>(d)] =
            Dim(dim.size(), Split::over(dim.split().axes(), granule));
        offer(l);
      }
    }
    return best;
  }
};

const View& view_op() {
  static const View op;
  return op;
}

// --- permute: attrs.i is the order
// --------------------------------------------
class Permute : public IndexOp {
 public:
  Permute() : IndexOp("permute") {}
  std::optional<Decision> decide(std::span<const OpInput> in,
                                 const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    Layout l;
    Shape shape;
    l.partials = s->layout().partials;
    for (int64_t d : attrs.i) {
      l.dims.push_back(s->dim(static_cast<int>(d)));
      shape.push_back(s->shape()[static_cast<int>(d)]);
    }
    Decision d;
    d.in = {s};
    d.out = {Spec::get(s->mesh(), shape, l, s->dtype())};
    return d;
  }
  bool allocates() const override { return false; }
  void compute(Compute& c) const override {
    c.out[0] = c.in[0].permute(Shape(c.attrs.i));
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    std::vector<int> inverse(g.attrs.i.size());
    for (size_t d = 0; d < inverse.size(); ++d)
      inverse[static_cast<size_t>(g.attrs.i[d])] = static_cast<int>(d);
    return {permute(g.cotangents[0], inverse)};
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{5, 3, 2}}};
    s.attrs.i = {2, 0, 1};
    return {s};
  }
};

const Permute& permute_op() {
  static const Permute op;
  return op;
}

// --- slice and its gradient
// --------------------------------------------------- attrs.i: dim, lo, hi,
// step.
class Slice : public IndexOp {
 public:
  Slice() : IndexOp("slice") {}
  std::optional<Decision> decide(std::span<const OpInput> in,
                                 const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    auto dim = static_cast<size_t>(attrs.i[0]);
    int64_t lo = attrs.i[1], hi = attrs.i[2], step = attrs.i[3];
    Decision d;
    Layout from = s->layout(), to = from;
    Shape shape = s->shape();
    int64_t n = (hi - lo + step - 1) / step;
    shape[static_cast<int>(dim)] = n;
    std::optional<Dim> kept;
    if (step == 1) kept = from.dims[dim].slice(s->mesh(), lo, n);
    if (!kept) {
      from.dims[dim] = Dim(s->shape()[static_cast<int>(dim)]);
      kept = Dim(n);
    }
    to.dims[dim] = *kept;
    d.in = {s->with(from)};
    d.out = {Spec::get(s->mesh(), shape, to, s->dtype())};
    return d;
  }
  bool allocates() const override { return false; }
  void compute(Compute& c) const override {
    int dim = static_cast<int>(c.attrs.i[0]);
    auto [lo, hi] = local_range(c.decision.in[0], c.coord(), dim, c.attrs.i[1],
                                c.attrs.i[2]);
    c.out[0] = c.in[0].slice(dim, lo, hi, c.attrs.i[3]);
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override {
    Sample rows, stepped;
    rows.inputs = {{Shape{7, 3}}};
    rows.attrs.i = {0, 2, 5, 1};
    stepped.inputs = {{Shape{7, 3}}};
    stepped.attrs.i = {0, 1, 7, 2};
    return {rows, stepped};
  }

  // Where the global indices [lo, hi) lie in this rank's part.
  static std::pair<int64_t, int64_t> local_range(const Spec* s, const Coord& c,
                                                 int dim, int64_t lo,
                                                 int64_t hi) {
    IntervalList has;
    s->dim(dim).intervals(s->mesh(), c, has);
    int64_t before = 0, inside = 0;
    for (const Interval& r : has) {
      before += std::max<int64_t>(0, std::min(r.hi, lo) - r.lo);
      inside += std::max<int64_t>(0, std::min(r.hi, hi) - std::max(r.lo, lo));
    }
    return {before, before + inside};
  }
};

// Zeros around: the gradient of a slice. attrs.i: dim, lo, hi, step, n, then,
// where the forward's dimension was split, the number of axes, the axes and
// the boundaries, so that every rank pads what it sliced.
class Pad : public IndexOp {
 public:
  Pad() : IndexOp("slice_backward") {}
  std::optional<Decision> decide(std::span<const OpInput> in,
                                 const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    auto dim = static_cast<size_t>(attrs.i[0]);
    int64_t lo = attrs.i[1], n = attrs.i[4];
    const Mesh& mesh = s->mesh();
    Dim whole(n);
    if (attrs.i.size() > 5) {
      auto axes_end = attrs.i.begin() + 6 + attrs.i[5];
      std::vector<int> axes(attrs.i.begin() + 6, axes_end);
      whole = Dim(n, Split::at(axes, {axes_end, attrs.i.end()}, mesh));
    }
    Layout from = s->layout(), to;
    from.dims[dim] = attrs.i[3] == 1
                         ? *whole.slice(mesh, lo, s->shape()[int(dim)])
                         : Dim(s->shape()[int(dim)]);
    if (attrs.i[3] != 1) whole = Dim(n);
    // The axes of the slice are free for it: whoever else used them gives way.
    for (size_t k = 0; k < from.dims.size(); ++k)
      if (k != dim && (from.dims[k].axes() & from.dims[dim].axes()))
        from.dims[k] = Dim(from.dims[k].size());
    std::erase_if(from.partials, [&](const Partial& p) {
      return (from.dims[dim].axes() | whole.axes()) >> p.axis & 1;
    });
    to = from;
    to.dims[dim] = whole;
    Shape shape = s->shape();
    shape[static_cast<int>(dim)] = n;
    Decision d;
    d.in = {s->with(from)};
    d.out = {Spec::get(mesh, shape, to, s->dtype())};
    return d;
  }
  void compute(Compute& c) const override {
    int dim = static_cast<int>(c.attrs.i[0]);
    auto [lo, hi] = Slice::local_range(c.decision.out[0], c.coord(), dim,
                                       c.attrs.i[1], c.attrs.i[2]);
    c.launch([&, lo = lo, hi = hi] {
      c.out[0].fill(0);
      c.out[0].slice(dim, lo, hi, c.attrs.i[3]).copy_from(c.in[0]);
    });
  }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    return {slice(g.cotangents[0], static_cast<int>(g.attrs.i[0]), g.attrs.i[1],
                  g.attrs.i[2], g.attrs.i[3])};
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{3, 4}}};
    s.attrs.i = {0, 2, 5, 1, 7};
    return {s};
  }
};

const Slice& slice_op() {
  static const Slice op;
  return op;
}
const Pad& pad_op() {
  static const Pad op;
  return op;
}

std::vector<DistTensor> Slice::gradient(const GradientCall& g) const {
  const Spec* in = g.decision->in[0];
  int dim = static_cast<int>(g.attrs.i[0]);
  Attrs attrs = g.attrs;
  attrs.i.push_back(in->shape()[dim]);
  const Dim& d = in->dim(dim);
  if (d.kind() == Dim::Kind::kLeaf && !d.whole()) {
    attrs.i.push_back(d.split().num_axes());
    for (int a : d.split().axes()) attrs.i.push_back(a);
    for (int64_t i = 0, p = d.split().parts(in->mesh()); i <= p; ++i)
      attrs.i.push_back(d.split().boundary(in->mesh(), d.size(), i));
  }
  return {apply1(pad_op(), {&g.cotangents[0], 1}, attrs)};
}

// --- cat: attrs.i is the dimension
// ---------------------------------------------
class Cat : public Op {
 public:
  Cat() : Op("cat") {}
  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    // "aAb,aBb->aZb": a letter of its own for every piece, none of them split.
    std::string text, joint;
    int64_t total = 0;
    int n = shapes[0].size(), dim = static_cast<int>(attrs.i[0]);
    for (size_t i = 0; i < shapes.size(); ++i) {
      DT_CHECK(shapes[i].size() == n, name(),
               "shapes {} and {} have different numbers of dimensions",
               to_string(shapes[0]), to_string(shapes[i]));
      if (i) text += ',', joint += ',';
      joint += std::to_string(i);
      text += term(n, dim, static_cast<char>('A' + i));
      total += shapes[i][dim];
    }
    text += "->" + term(n, dim, 'Z') + " | linear " + joint + "; max " + joint +
            "; min " + joint;
    return BoundRule(Rule(text), shapes, name(), {{'Z', total}});
  }
  void compute(Compute& c) const override {
    int dim = static_cast<int>(c.attrs.i[0]);
    int64_t at = 0;
    c.launch([&] {
      for (const Tensor& t : c.in) {
        int64_t n = t.shape()[dim];
        c.out[0].slice(dim, at, at + n).copy_from(t);
        at += n;
      }
    });
  }
  bool saves_inputs() const override { return false; }
  std::vector<DistTensor> gradient(const GradientCall& g) const override {
    std::vector<DistTensor> grads(g.inputs.size());
    int dim = static_cast<int>(g.attrs.i[0]);
    int64_t at = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      int64_t n = g.decision->in[i]->shape()[dim];
      if (g.needed[i]) grads[i] = slice(g.cotangents[0], dim, at, at + n);
      at += n;
    }
    return grads;
  }
  std::vector<Sample> samples() const override {
    Sample s;
    s.inputs = {{Shape{5, 2}}, {Shape{5, 3}}};
    s.attrs.i = {1};
    return {s};
  }

 private:
  static std::string term(int n, int dim, char piece) {
    std::string t;
    for (int d = 0; d < n; ++d) {
      t += d == dim ? piece : static_cast<char>('a' + d);
      if (d == dim) t += '!';
    }
    return t;
  }
};

const Cat& cat_op() {
  static const Cat op;
  return op;
}

Shape resolve_shape(const DistTensor& x, const Shape& shape,
                    std::string_view op) {
  Shape s = shape;
  int64_t known = 1;
  int open = -1;
  for (int d = 0; d < s.size(); ++d) {
    if (s[d] == -1) {
      DT_CHECK(open < 0, op, "{} has more than one -1", to_string(shape));
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
           "{} has {} elements, which do not fill {}", x.spec()->to_string(), n,
           to_string(shape));
  return s;
}

}  // namespace

std::vector<const Op*> view_ops() {
  return {&view_op(), &permute_op(), &slice_op(), &pad_op(), &cat_op()};
}

DistTensor view(const DistTensor& x, const Shape& shape) {
  Shape s = resolve_shape(x, shape, "view");
  if (s == x.shape()) return x;
  return apply1(view_op(), {&x, 1}, {{s.begin(), s.end()}, {}});
}

DistTensor reshape(const DistTensor& x, const Shape& shape) {
  Shape s = resolve_shape(x, shape, "reshape");
  const Spec* spec = settled(x.spec());
  if (s != x.shape() && !view_layout(spec->layout(), spec->mesh(), s))
    return view(x.redistribute(View::movable(spec, s)), s);
  return view(x, s);
}

DistTensor permute(const DistTensor& x, const std::vector<int>& order) {
  DT_CHECK(static_cast<int>(order.size()) == x.ndim(), "permute",
           "an order of {} dimensions does not fit {}", order.size(),
           x.spec()->to_string());
  Attrs attrs;
  uint32_t seen = 0;
  bool identity = true;
  for (int d : order) {
    int at = normalize_dim(d, x.ndim(), "permute");
    DT_CHECK(!(seen >> at & 1), "permute", "dimension {} is named twice", d);
    seen |= 1u << at;
    identity &= at == static_cast<int>(attrs.i.size());
    attrs.i.push_back(at);
  }
  return identity ? x : apply1(permute_op(), {&x, 1}, attrs);
}

DistTensor transpose(const DistTensor& x, int a, int b) {
  std::vector<int> order;
  for (int d = 0; d < x.ndim(); ++d) order.push_back(d);
  std::swap(
      order[static_cast<size_t>(normalize_dim(a, x.ndim(), "transpose"))],
      order[static_cast<size_t>(normalize_dim(b, x.ndim(), "transpose"))]);
  return permute(x, order);
}

DistTensor squeeze(const DistTensor& x, int dim) {
  int d = normalize_dim(dim, x.ndim(), "squeeze");
  DT_CHECK(x.size(d) == 1, "squeeze", "dimension {} of {} has size {}, not 1",
           dim, x.spec()->to_string(), x.size(d));
  Shape s = x.shape();
  s.erase(d);
  return reshape(x, s);
}

DistTensor unsqueeze(const DistTensor& x, int dim) {
  Shape s = x.shape();
  s.insert(normalize_dim(dim, x.ndim() + 1, "unsqueeze"), 1);
  return view(x, s);
}

DistTensor slice(const DistTensor& x, int dim, int64_t lo, int64_t hi,
                 int64_t step) {
  int d = normalize_dim(dim, x.ndim(), "slice");
  DT_CHECK(step >= 1, "slice", "a step of {}; it is at least 1", step);
  int64_t n = x.size(d);
  auto clamp_index = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n);
  };
  lo = clamp_index(lo);
  hi = std::max(lo, clamp_index(hi));
  if (lo == 0 && hi == n && step == 1) return x;
  return apply1(slice_op(), {&x, 1}, {{d, lo, hi, step}, {}});
}

DistTensor select(const DistTensor& x, int dim, int64_t index) {
  int d = normalize_dim(dim, x.ndim(), "select");
  int64_t n = x.size(d), i = index < 0 ? index + n : index;
  DT_CHECK(i >= 0 && i < n, "select",
           "index {} is out of range for dimension {} of {}", index, dim,
           x.spec()->to_string());
  return squeeze(slice(x, d, i, i + 1), d);
}

DistTensor cat(const std::vector<DistTensor>& pieces, int dim) {
  DT_CHECK(!pieces.empty(), "cat", "there is nothing to put together");
  constexpr size_t kAtOnce = 8;
  if (pieces.size() == 1) return pieces[0];
  if (pieces.size() > kAtOnce) {
    std::vector<DistTensor> fewer;
    for (size_t i = 0; i < pieces.size(); i += kAtOnce)
      fewer.push_back(cat({pieces.begin() + static_cast<int64_t>(i),
                           pieces.begin() + static_cast<int64_t>(std::min(
                                                i + kAtOnce, pieces.size()))},
                          dim));
    return cat(fewer, dim);
  }
  for (const DistTensor& p : pieces)
    DT_CHECK(p.dtype() == pieces[0].dtype(), "cat",
             "pieces of types {} and {}; cast them to one type",
             name(pieces[0].dtype()), name(p.dtype()));
  return apply1(cat_op(), pieces,
                {{normalize_dim(dim, pieces[0].ndim(), "cat")}, {}});
}

std::vector<DistTensor> split(const DistTensor& x,
                              const std::vector<int64_t>& sizes, int dim) {
  int d = normalize_dim(dim, x.ndim(), "split");
  int64_t total = 0;
  for (int64_t s : sizes) {
    DT_CHECK(s >= 0, "split", "a piece of size {}", s);
    total += s;
  }
  DT_CHECK(total == x.size(d), "split",
           "pieces of {} elements in all do not make up dimension {} of {}",
           total, dim, x.spec()->to_string());
  std::vector<DistTensor> pieces;
  int64_t at = 0;
  for (int64_t s : sizes) {
    pieces.push_back(slice(x, d, at, at + s));
    at += s;
  }
  return pieces;
}

}  // namespace dtensor
