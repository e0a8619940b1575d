// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "dtensor/dist_tensor_impl.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/index_op.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

// The indices lo, lo + step, ... below hi of dimension `dim`.
struct SliceArgs {
  static constexpr Fields kFields = {"dim", "lo", "hi", "step"};
  int64_t dim, lo, hi, step;
};
// The reverse of SliceArgs: puts a tensor at these indices of a dimension of
// size `size`.
struct PadArgs {
  static constexpr Fields kFields = {"dim", "lo", "hi", "step", "size"};
  int64_t dim, lo, hi, step, size;
};

// Replaces SliceArgs or PadArgs for a dimension that every rank has in full. No
// layout depends on `lo` then, so calls that differ only in `lo` share one
// choice of layouts (decision.h).
struct WindowArgs {
  static constexpr Fields kFields = {"dim", value("lo"), "count", "step",
                                     "size"};
  int64_t dim, lo, count, step, size;
};

// `op` is the name in errors.
struct Indices {
  Indices(std::string_view op, const SliceArgs& a)
      : dim(static_cast<int>(a.dim)), lo(a.lo), hi(a.hi), step(a.step) {
    DT_CHECK(dim >= 0 && 0 <= lo && lo <= hi && step >= 1, op,
             "dim is {}, lo {}, hi {} and step {}; write 0 <= lo <= hi, a dim "
             "of at least 0 and a step of at least 1",
             dim, lo, hi, step);
  }
  Indices(std::string_view op, const PadArgs& a)
      : Indices(op, SliceArgs{a.dim, a.lo, a.hi, a.step}) {}
  Indices(std::string_view op, const WindowArgs& a)
      : Indices(op, SliceArgs{
                        a.dim, a.lo,
                        a.lo + std::max<int64_t>(0, (a.count - 1) * a.step + 1),
                        a.step}) {}
  // The indices that a call of Slice or Pad was given.
  template <class Args>
  static Indices of_call(std::string_view op, const Attrs& attrs) {
    const auto* window = attrs.get<WindowArgs>();
    return window ? Indices(op, *window) : Indices(op, attrs.as<Args>());
  }

  int64_t count() const { return (hi - lo + step - 1) / step; }

  // Returns the Dim of the slice that these indices take from a dimension with
  // Dim d. Returns nullopt if no Dim describes that slice.
  std::optional<Dim> of(const Dim& d, const Mesh& mesh) const {
    return every(*d.slice(mesh, lo, hi - lo), mesh, step);
  }

  // Calls fn(at, from, n) for every run in a rank's part of d: local indices
  // from, from + step, ... (n of them) become at, at + 1, ... of the slice.
  // Returns the number of runs.
  template <class Fn>
  int64_t runs(const Dim& d, const Mesh& mesh, const Coord& c, Fn&& fn) const {
    IntervalList has;
    d.intervals(mesh, c, has);
    int64_t at = 0, from = 0, n = 0, base = 0, found = 0;
    auto end_run = [&] {
      if (n == 0) return;
      fn(at, from, n);
      ++found;
      at += n;
      n = 0;
    };
    for (const Interval& r : has) {
      int64_t skipped = std::max<int64_t>(0, r.lo - lo + step - 1) / step;
      int64_t first = lo + skipped * step, last = std::min(hi, r.hi);
      if (first < last) {
        int64_t here = base + first - r.lo;
        if (n > 0 && from + n * step != here) end_run();
        if (n == 0) from = here;
        n += (last - first + step - 1) / step;
      }
      base += r.size();
    }
    end_run();
    return found;
  }

  int dim;
  int64_t lo, hi, step;
};

class Slice : public IndexOp {
 public:
  // A view if this rank's part of the slice is at most one run, else a copy.
  Slice() : IndexOp("slice", false) {}
  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    const auto indices = Indices::of_call<SliceArgs>(name(), attrs);
    DT_CHECK(indices.dim < s->ndim() && indices.hi <= s->shape()[indices.dim],
             name(),
             "{} has no indices [{}, {}) in dimension {}; pass indices within "
             "its shape",
             s->to_string(), indices.lo, indices.hi, indices.dim);
    auto dim = static_cast<size_t>(indices.dim);
    Layout from = s->layout(), to = from;
    Shape shape = s->shape();
    shape[indices.dim] = indices.count();
    auto kept = indices.of(from.dims[dim], s->mesh());
    if (!kept || attrs.get<WindowArgs>()) {
      from.dims[dim] = Dim(s->shape()[indices.dim]);
      kept = Dim(indices.count());
    }
    to.dims[dim] = *kept;
    return {{{s->with(from)}, {Spec::get(s->mesh(), shape, to, s->dtype())}}};
  }
  void compute(Compute& c) const override {
    const auto indices = Indices::of_call<SliceArgs>(name(), c.attrs);
    const int dim = indices.dim;
    const Tensor& x = c.in[0];
    Tensor& out = c.out[0];
    auto for_runs = [&](auto&& fn) {
      return indices.runs(c.decision.in[0]->dim(dim), c.mesh(), c.coord(), fn);
    };
    auto window = [&](int64_t from, int64_t n) {
      return x.slice(dim, from, from + (n - 1) * indices.step + 1,
                     indices.step);
    };
    int64_t found = for_runs(
        [&](int64_t, int64_t from, int64_t n) { out = window(from, n); });
    if (found == 0) out = x.slice(dim, 0, 0);
    if (found < 2) return;
    out = Tensor::empty(c.decision.out_local[0], x.dtype());
    for_runs([&](int64_t at, int64_t from, int64_t n) {
      out.slice(dim, at, at + n).copy_from(window(from, n));
    });
  }
  InputGradients gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override {
    Sample rows, stepped, columns;
    rows.inputs = {{Shape{7, 3}}};
    rows.attrs = SliceArgs{0, 2, 5, 1};
    stepped.inputs = {{Shape{7, 3}}};
    stepped.attrs = SliceArgs{0, 1, 7, 2};
    columns.inputs = {{Shape{2, 12}}};
    columns.attrs = SliceArgs{1, 2, 12, 3};
    Sample window = stepped;
    window.attrs = WindowArgs{0, 1, 3, 2, 7};
    return {rows, stepped, columns, window};
  }
};

// The gradient of a slice: its cotangent at the indices of the slice, and zeros
// at the others. The padded dimension has the layout that it has in attrs.like,
// the slice's input, so that every rank pads the part that it sliced. Without
// attrs.like, with WindowArgs, or if no Dim describes the slice, it is whole.
class Pad : public IndexOp {
 public:
  Pad() : IndexOp("slice_backward") {}
  std::vector<Candidate> candidates(std::span<const OpInput> in,
                                    const Attrs& attrs) const override {
    const Spec* s = settled(in[0].spec);
    const Mesh& mesh = s->mesh();
    const auto* window = attrs.get<WindowArgs>();
    const int64_t size = window ? window->size : attrs.as<PadArgs>().size;
    const auto indices = Indices::of_call<PadArgs>(name(), attrs);
    DT_CHECK(
        indices.dim < s->ndim() && indices.hi <= size &&
            indices.count() == s->shape()[indices.dim],
        name(),
        "{} does not fit the indices [{}, {}), in steps of {}, of dimension "
        "{} of size {}; write as many indices as the tensor has there",
        s->to_string(), indices.lo, indices.hi, indices.step, indices.dim,
        size);
    auto dim = static_cast<size_t>(indices.dim);
    Dim padded(size);
    if (attrs.like && !window) padded = attrs.like->dim(indices.dim);
    auto sliced = indices.of(padded, mesh);
    if (!sliced) padded = Dim(padded.size()), sliced = Dim(indices.count());
    // The axes of the padded dimension may not be in use elsewhere: other
    // dimensions that they split are gathered, and partials over them reduced.
    Layout from = s->layout();
    const AxisMask taken = padded.axes();
    for (size_t k = 0; k < from.dims.size(); ++k)
      from.dims[k] =
          k == dim ? *sliced : restricted(from.dims[k], mesh, ~taken);
    std::erase_if(from.partials,
                  [&](const Partial& p) { return taken >> p.axis & 1; });
    Layout to = from;
    to.dims[dim] = padded;
    Shape shape = s->shape();
    shape[indices.dim] = padded.size();
    return {{{s->with(from)},
             {Spec::get(mesh, shape, to, s->dtype())},
             static_cast<double>(numel(shape))}};
  }
  void compute(Compute& c) const override {
    const auto indices = Indices::of_call<PadArgs>(name(), c.attrs);
    const int dim = indices.dim;
    c.out[0].fill(0);
    indices.runs(c.decision.out[0]->dim(dim), c.mesh(), c.coord(),
                 [&](int64_t at, int64_t from, int64_t n) {
                   c.out[0]
                       .slice(dim, from, from + (n - 1) * indices.step + 1,
                              indices.step)
                       .copy_from(c.in[0].slice(dim, at, at + n));
                 });
  }
  InputGradients gradient(const GradientCall& g) const override;
  std::vector<Sample> samples() const override {
    Sample rows, stepped;
    rows.inputs = {{Shape{3, 4}}};
    rows.attrs = PadArgs{0, 2, 5, 1, 7};
    stepped.inputs = {{Shape{2, 3}}};
    stepped.attrs = PadArgs{1, 1, 8, 3, 8};
    Sample window = stepped;
    window.attrs = WindowArgs{1, 2, 3, 2, 8};
    return {rows, stepped, window};
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

// Runs Slice. REQUIRES: the indices exist.
DistTensor sliced(const DistTensor& x, const Indices& i) {
  const int64_t size = x.size(i.dim);
  if (x.use_spec()->dim(i.dim).whole())
    return apply1(slice_op(), x,
                  WindowArgs{i.dim, i.lo, i.count(), i.step, size});
  return apply1(slice_op(), x, SliceArgs{i.dim, i.lo, i.hi, i.step});
}

InputGradients Slice::gradient(const GradientCall& g) const {
  const Spec* in = g.decision->in[0];
  Attrs attrs = g.attrs;
  if (const auto* a = g.attrs.get<SliceArgs>())
    attrs = PadArgs{a->dim, a->lo, a->hi, a->step,
                    in->shape()[static_cast<int>(a->dim)]};
  attrs.like = in;
  return {apply1(pad_op(), g.cotangents.first(1), attrs)};
}

InputGradients Pad::gradient(const GradientCall& g) const {
  return {sliced(g.cotangents[0], Indices::of_call<PadArgs>(name(), g.attrs))};
}

// Like slice(). REQUIRES: 0 <= lo <= hi <= the size of the dimension.
DistTensor window(const DistTensor& x, int dim, int64_t lo, int64_t hi,
                  int64_t step = 1) {
  if (lo == 0 && hi == x.size(dim) && step == 1) return alias(x);
  return sliced(x, Indices("slice", SliceArgs{dim, lo, hi, step}));
}

// The arguments of slice(), with lo and hi clamped to indices that exist.
SliceArgs clamped(std::string_view op, const DistTensor& x, int dim, int64_t lo,
                  int64_t hi, int64_t step) {
  DT_CHECK(step >= 1, op, "step is {}; write at least 1", step);
  const int64_t n = x.size(dim);
  auto clamp_index = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n);
  };
  lo = clamp_index(lo);
  return {dim, lo, std::max(lo, clamp_index(hi)), step};
}

}  // namespace

static const OpFamily kFamily("slice", [] {
  return OpList{&slice_op(), &pad_op()};
});

DistTensor slice(const DistTensor& x, int dim, int64_t lo, int64_t hi,
                 int64_t step) {
  check_defined("slice", x);
  const int d = normalize_dim(dim, x.ndim(), "slice");
  const SliceArgs at = clamped("slice", x, d, lo, hi, step);
  return window(x, d, at.lo, at.hi, step);
}

DistTensor narrow(const DistTensor& x, int dim, int64_t start, int64_t length) {
  check_defined("narrow", x);
  int d = normalize_dim(dim, x.ndim(), "narrow");
  int64_t n = x.size(d), lo = start < 0 ? start + n : start;
  DT_CHECK(lo >= 0 && length >= 0 && lo <= n && length <= n - lo, "narrow",
           "start is {} and length is {}, but dimension {} of {} has size {}; "
           "write a start and a length within it",
           start, length, dim, x.spec()->to_string(), n);
  return window(x, d, lo, lo + length);
}

namespace {

// `index`, counted from the start of dimension d of x. Throws Error unless it
// exists.
int64_t existing(std::string_view op, const DistTensor& x, int d,
                 int64_t index) {
  const int64_t n = x.size(d), i = index < 0 ? index + n : index;
  DT_CHECK(n > 0, op,
           "dimension {} of {} is empty, so it has no index {}; pass a tensor "
           "with elements",
           d, x.spec()->to_string(), index);
  DT_CHECK(i >= 0 && i < n, op,
           "index {} is out of range for dimension {} of {}; write an index in "
           "[-{}, {})",
           index, d, x.spec()->to_string(), n, n);
  return i;
}

// Throws Error unless t, which the message calls `name`, is on the mesh of x.
void check_mesh(const DistTensor& x, const DistTensor& t,
                std::string_view name) {
  DT_CHECK(x.mesh() == t.mesh(), "copy_into",
           "the tensor x is on mesh {}, but the {} are on {}; write "
           "{}.redistribute(x.mesh(), {{}})",
           x.mesh().to_string(), name, t.mesh().to_string(), name);
}

// Throws Error unless copy_into() can write `rows` into x along dimension d.
// `fit` says whether the indices are right; `where` and `remedy` are parts of
// the message.
void check_into(const DistTensor& x, const DistTensor& rows, int d, bool fit,
                std::string_view where, std::string_view remedy) {
  Shape fits = x.shape();
  if (rows.ndim() == x.ndim()) fits[d] = rows.size(d);
  DT_CHECK(fit && rows.shape() == fits && rows.dtype() == x.dtype(),
           "copy_into",
           "{} does not fit into dimension {} of {} {}; pass rows of the same "
           "type and, in other dimensions, of the same sizes, {}",
           rows.spec()->to_string(), d, x.spec()->to_string(), where, remedy);
  DT_CHECK(!x.spec()->partial_axes(), "copy_into",
           "cannot write into {}, which is partial; redistribute() it first",
           x.spec()->to_string());
  check_mesh(x, rows, "rows");
  DT_CHECK(!grad_enabled() || !(x.requires_grad() || rows.requires_grad()),
           "copy_into",
           "{} or {} requires a gradient, which copy_into() does not compute; "
           "call it inside a NoGrad scope",
           x.spec()->to_string(), rows.spec()->to_string());
}

// Moves t to a layout that copy_into() needs. Throws Error if this is not
// allowed (ExplicitOnly); the message calls t by `name`.
DistTensor moved_for_copy(const DistTensor& t, const Layout& to,
                          std::string_view name) {
  RankContext& ctx = RankContext::current();
  const Scoped<std::string_view> op(ctx.op, "copy_into");
  const Spec* spec = Spec::get(t.mesh(), t.shape(), to, t.dtype());
  DT_CHECK(
      !ctx.explicit_only || !ctx.planner.plan(t.spec(), spec).communicates(),
      "copy_into",
      "would have to communicate: the {} are {} and are needed as {}; "
      "write {}.redistribute(\"{}\") before it",
      name, t.spec()->to_string(), spec->to_string(), name,
      spec->layout().to_string(t.mesh()));
  return relayout(t, spec);
}

// Moves the rows so that every rank has all of them, cut like its part of x in
// the other dimensions. The caller writes those that lie in the rank's part of
// dimension d. So the move does not depend on the rows' indices in x.
DistTensor rows_of_part(const DistTensor& x, const DistTensor& rows, int d) {
  Layout to = x.layout();
  to.dims[static_cast<size_t>(d)] = Dim(rows.size(d));
  return moved_for_copy(rows, to, "rows");
}

// This rank's part of x, which the caller will change; null on a rank outside
// of the mesh. Folds `how`, a hash of what is written where, into x's lineage.
const Tensor* part_to_change(const DistTensor& x, uint64_t how) {
  DistTensor::Impl& impl = *x.impl();
  impl.lineage.hash = fold_lineage(impl.lineage.hash, how);
  // All ranks drop the cached moved copies of x, even if they write nothing.
  impl.copies.clear();
  if (!RankContext::current().coordinate_or_null(x.mesh())) return nullptr;
  impl.part().storage()->bump_version();
  return &impl.part();
}

void check_source(std::string_view op, const DistTensor& x,
                  const DistTensor& src) {
  check_defined(op, {x, src});
  DT_CHECK(src.mesh() == x.mesh(), op,
           "src is on mesh {}, but x is on {}; write "
           "src.redistribute(x.mesh(), {{}})",
           src.mesh().to_string(), x.mesh().to_string());
}

}  // namespace

void copy_into(const DistTensor& x, const DistTensor& rows, int dim,
               int64_t start) {
  check_defined("copy_into", {x, rows});
  const int d = normalize_dim(dim, x.ndim(), "copy_into");
  const int64_t n = rows.ndim() == x.ndim() ? rows.size(d) : 0;
  check_into(x, rows, d, start >= 0 && start <= x.size(d) - n,
             fmt::format("from index {} on", start),
             "which begin and end within the dimension");
  const DistTensor moved = rows_of_part(x, rows, d);
  const Tensor* part = part_to_change(
      x,
      fold_lineage(moved.impl()->lineage.hash, static_cast<uint64_t>(start)));
  if (!part) return;
  Tensor from = moved.local();
  if (from.storage() == part->storage()) from = from.clone();
  const Region has = x.region();
  int64_t base = 0;
  for (const Interval& r : has[static_cast<size_t>(d)]) {
    const int64_t lo = std::max(r.lo, start), hi = std::min(r.hi, start + n);
    if (lo < hi)
      part->slice(d, base + lo - r.lo, base + hi - r.lo)
          .copy_from(from.slice(d, lo - start, hi - start));
    base += r.size();
  }
}

void copy_into(const DistTensor& x, const DistTensor& rows, int dim,
               const DistTensor& at) {
  check_defined("copy_into", {x, rows, at});
  const int d = normalize_dim(dim, x.ndim(), "copy_into");
  const DType t = at.dtype();
  DT_CHECK((t == DType::kI32 || t == DType::kI64) && at.ndim() == 1,
           "copy_into",
           "the indices are {}; write a vector of i32 or i64, with one index "
           "for each row",
           at.spec()->to_string());
  check_into(x, rows, d, rows.ndim() == x.ndim() && rows.size(d) == at.size(0),
             fmt::format("at the indices {}", at.spec()->to_string()),
             "one for each index");
  check_mesh(x, at, "indices");
  const DistTensor moved = rows_of_part(x, rows, d);
  const DistTensor where =
      moved_for_copy(at, Layout::replicated(at.shape()), "indices");
  RankContext& ctx = RankContext::current();
  const int64_t n = x.size(d);
  if (ctx.coordinate_or_null(x.mesh()))
    check_ids_in(ctx, "copy_into", where.local().to_contiguous(), *where.spec(),
                 n, -1, no_index(n, d));
  const Tensor* part = part_to_change(
      x, fold_lineage(moved.impl()->lineage.hash, where.impl()->lineage.hash));
  if (!part) return;
  const Shape& shape = part->shape();
  kernels::WriteRows write{.type = x.dtype(),
                           .count = at.size(0),
                           .n = 1,
                           .ids_type = t,
                           .size = shape[d]};
  for (int i = 0; i < shape.size(); ++i)
    if (i != d) (i < d ? write.outer : write.n) *= shape[i];
  Tensor from = moved.local().to_contiguous();
  if (from.storage() == part->storage()) from = from.clone();
  const Tensor ids = where.local().to_contiguous(), to = part->to_contiguous();
  write.rows = from.data();
  write.ids = ids.data();
  write.to = to.mutable_data();
  const Region has = x.region();
  for (const Interval& r : has[static_cast<size_t>(d)]) {
    write.lo = r.lo, write.hi = r.hi;
    kernels_of(*ctx.device).run(ctx.stream, write);
    write.at += r.size();
  }
  if (!part->contiguous()) part->copy_from(to);
}

DistTensor select(const DistTensor& x, int dim, int64_t index) {
  check_defined("select", x);
  int d = normalize_dim(dim, x.ndim(), "select");
  const int64_t i = existing("select", x, d, index);
  return squeeze(window(x, d, i, i + 1), d);
}

DistTensor slice_scatter(const DistTensor& x, const DistTensor& src, int dim,
                         int64_t lo, int64_t hi, int64_t step) {
  check_source("slice_scatter", x, src);
  const int d = normalize_dim(dim, x.ndim(), "slice_scatter");
  const SliceArgs at = clamped("slice_scatter", x, d, lo, hi, step);
  Shape shape = x.shape();
  shape[d] = Indices("slice_scatter", at).count();
  DT_CHECK(src.shape() == shape && src.dtype() == x.dtype(), "slice_scatter",
           "cannot put {} into a slice of {}; write a tensor of the same type "
           "and of shape {}",
           src.spec()->to_string(), x.spec()->to_string(), to_string(shape));
  Attrs attrs = PadArgs{d, at.lo, at.hi, at.step, x.size(d)};
  attrs.like = x.spec();
  // Padded with false, `in` is the mask of the slice's indices along d.
  Shape line = Shape::filled(x.ndim(), 1);
  line[d] = shape[d];
  const DistTensor in = full(line, 1, x.mesh(), {}, DType::kBool);
  return where(apply1(pad_op(), in, attrs), apply1(pad_op(), src, attrs), x);
}

DistTensor select_scatter(const DistTensor& x, const DistTensor& src, int dim,
                          int64_t index) {
  check_source("select_scatter", x, src);
  const int d = normalize_dim(dim, x.ndim(), "select_scatter");
  const int64_t i = existing("select_scatter", x, d, index);
  Shape shape = x.shape();
  shape.erase(d);
  DT_CHECK(src.shape() == shape && src.dtype() == x.dtype(), "select_scatter",
           "cannot put {} into dimension {} of {}; write a tensor of the same "
           "type and of shape {}",
           src.spec()->to_string(), d, x.spec()->to_string(), to_string(shape));
  return slice_scatter(x, unsqueeze(src, d), d, i, i + 1);
}

std::vector<DistTensor> split(const DistTensor& x,
                              const std::vector<int64_t>& sizes, int dim) {
  check_defined("split", x);
  int d = normalize_dim(dim, x.ndim(), "split");
  int64_t total = 0;
  for (int64_t s : sizes) {
    DT_CHECK(s >= 0, "split", "got a piece of size {}; write 0 or more", s);
    total += s;
  }
  DT_CHECK(total == x.size(d), "split",
           "the sizes of the pieces add up to {}, which is not the size of "
           "dimension {} of {}; write sizes that add up to {}",
           total, dim, x.spec()->to_string(), x.size(d));
  std::vector<DistTensor> pieces;
  int64_t at = 0;
  for (int64_t s : sizes) {
    pieces.push_back(window(x, d, at, at + s));
    at += s;
  }
  return pieces;
}

std::vector<DistTensor> split(const DistTensor& x, int64_t size, int dim) {
  check_defined("split", x);
  int64_t n = x.size(normalize_dim(dim, x.ndim(), "split"));
  DT_CHECK(size > 0 || (size == 0 && n == 0), "split",
           "cannot split into pieces of size {} along dimension {} of {}; "
           "write at least 1",
           size, dim, x.spec()->to_string());
  std::vector<int64_t> sizes(1, std::min(size, n));
  for (int64_t at = sizes[0]; at < n; at += size)
    sizes.push_back(std::min(size, n - at));
  return split(x, sizes, dim);
}

std::vector<DistTensor> chunk(const DistTensor& x, int64_t chunks, int dim) {
  check_defined("chunk", x);
  int64_t n = x.size(normalize_dim(dim, x.ndim(), "chunk"));
  DT_CHECK(chunks >= 1, "chunk", "chunks is {}; write at least 1", chunks);
  if (n == 0)
    return split(x, std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim);
  return split(x, (n + chunks - 1) / chunks, dim);
}

}  // namespace dtensor
