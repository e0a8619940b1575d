// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/attention_call.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/owned.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using internal::AttentionArgs;
using Values = SampleInput::Values;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Used instead of minus infinity: the softmax of a row of infinities is NaN.
constexpr double kLowest = -1e30;
// The products q k^T and p v take a multiplication and an addition each.
constexpr double kFlopsPerPoint = 4;

void check_dtypes(std::string_view op, std::span<const DType> in, size_t fixed,
                  const Attrs& attrs) {
  check_one_type(op, std::vector{in[0], in[1], in[2]});
  if (attrs.as<AttentionArgs>().documents) return;
  DT_CHECK(
      in.size() <= fixed || in[fixed] == DType::kBool || in[fixed] == in[0], op,
      "q is {} and the mask is {}; write a mask of bool or {}", name(in[0]),
      name(in[fixed]), name(in[0]));
}

struct SampleShape {
  int64_t b, s, t, h, g, d;
  bool causal;
  Shape mask;  // empty: none
  Values mask_values = Values::kAny;
  bool ring = false, documents = false;
  int64_t length = 0, window = 0;
  double soft_cap = 0;
};

std::vector<Sample> attention_samples(bool backward) {
  std::vector<Sample> list;
  const SampleShape shapes[] = {
      {2, 3, 5, 6, 2, 4, false, {}},
      {1, 5, 5, 3, 3, 2, true, {}},
      {3, 4, 3, 4, 1, 3, true, {}},
      {1, 1, 1, 1, 1, 1, false, {}},
      {2, 3, 5, 6, 2, 4, false, {3, 5}, Values::kAny},
      {2, 3, 4, 6, 3, 2, false, {2, 1, 1, 4}, Values::kAny},
      {2, 3, 4, 6, 3, 2, true, {6, 3, 4}, Values::kBool},
      {2, 5, 5, 4, 2, 2, true, {}, Values::kAny, true},
      {1, 3, 4, 2, 1, 2, false, {2, 3, 4}, Values::kAny, true},
      {2, 4, 4, 2, 2, 2, true, {}, Values::kAny, false, true},
      {1, 7, 7, 3, 1, 2, false, {}, Values::kAny, true, true},
      {2, 3, 7, 4, 2, 2, true, {}, Values::kAny, false, false, 5},
      {1, 2, 6, 2, 2, 3, false, {6}, Values::kAny, false, false, 4},
      {2, 5, 5, 4, 2, 2, true, {}, Values::kAny, false, false, 0, 2, 1.5},
      {1, 7, 7, 2, 1, 2, true, {}, Values::kAny, true, true, 0, 3, 0.5},
      {1, 3, 5, 2, 1, 2, false, {3, 5}, Values::kAny, false, false, 0, 0, 0.7},
      {1, 3, 8, 4, 2, 2, true, {}, Values::kAny, false, false, 7, 4, 0},
  };
  for (const SampleShape& x : shapes) {
    if (backward && x.length) continue;
    const Shape q{x.b, x.s, x.h, x.d}, k{x.b, x.t, x.g, x.d};
    Sample s;
    s.inputs = {{q}, {k}, {k}};
    if (backward)
      s.inputs.insert(s.inputs.end(), {{q}, {{x.b, x.h, x.s}}, {q}});
    if (!x.mask.empty()) s.inputs.push_back({x.mask, x.mask_values});
    if (x.documents)
      for (const int64_t n : {x.s, x.t})
        s.inputs.push_back({{x.b, n}, Values::kIndex, 3});
    // The explain program takes its arguments from a sample without a ring,
    // which has the default scale, 0. Samples with a ring have another scale.
    s.attrs = AttentionArgs{.causal = x.causal,
                            .scale = x.ring ? 0.7 : 0,
                            .ring = x.ring,
                            .documents = x.documents,
                            .length = x.length,
                            .window = x.window,
                            .soft_cap = x.soft_cap};
    list.push_back(s);
  }
  return list;
}

// q, k, v, out, lse, dout, [mask, or ids] -> dq, dk, dv
class AttentionBackward : public Op {
 public:
  // The work per point: five products, with a multiplication and an addition
  // each.
  AttentionBackward()
      : Op("attention_backward", {.work = {10}, .differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return internal::attention_rule(name(), shapes, attrs.as<AttentionArgs>(),
                                    true);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs& attrs) const override {
    check_dtypes(name(), in, 6, attrs);
    check_one_type(name(), std::vector{in[0], in[3], in[5]});
    return {in[0], in[0], in[0]};
  }
  std::vector<Sample> samples() const override {
    return attention_samples(true);
  }

  void compute(Compute& c) const override {
    internal::AttentionCall(c, 6).backward();
  }
};

// The layout of x with these axes removed from its Dims and partials.
Layout without(const Spec* x, AxisMask axes) {
  Layout layout = x->layout();
  for (Dim& dim : layout.dims) dim = restricted(dim, x->mesh(), ~axes);
  std::erase_if(layout.partials,
                [&](const Partial& p) { return axes >> p.axis & 1; });
  return layout;
}

// The spec of x [b, s, heads, d] in which these axes split the heads, and no
// other dimension. With `granule`, no other axes split the heads, and the parts
// are multiples of it.
const Spec* with_heads_on(const Spec* x, const std::vector<int>& axes,
                          int64_t granule = 0) {
  AxisMask mask = 0;
  for (const int a : axes) mask |= AxisMask{1} << a;
  Layout layout = without(x, mask);
  Dim& heads = layout.dims[2];
  if (granule)
    heads = Dim(heads.size(), Split::over(axes, granule));
  else
    for (const int a : axes) heads = subdivided(heads, x->mesh(), a);
  return x->with(layout);
}

// The spec of v with its sequence split as that of k, as a ring requires.
const Spec* beside(const Spec* v, const Spec* k) {
  Layout layout = without(v, k->dim(1).axes());
  layout.dims[1] = k->dim(1);
  return v->with(layout);
}

int64_t ring_bytes(const Spec* q, const Spec* k, const Spec* v) {
  const auto with_sums = [](const Spec* x, int64_t parts, int64_t sums) {
    return parts * x->largest_part_bytes() +
           sums * x->with(kernels::stat_of(x->dtype()))->largest_part_bytes();
  };
  return with_sums(q, 3, 1) + with_sums(k, 5, 2) +
         with_sums(beside(v, k), 5, 2);
}

int64_t heads_bytes(const Spec* q, const std::array<const Spec*, 3>& heads) {
  return 2 * q->largest_part_bytes() + 4 * heads[0]->largest_part_bytes() +
         3 * (heads[1]->largest_part_bytes() + heads[2]->largest_part_bytes());
}

// The axes over which q and k [b, s, heads, d] are both split along the
// sequence. 0 if q, k or v does not have four dimensions: bind() will throw.
AxisMask context_axes(const Spec* q, const Spec* k, const Spec* v) {
  for (const Spec* x : {q, k, v})
    if (x->ndim() != 4) return 0;
  return q->dim(1).axes() & k->dim(1).axes();
}

// The two ways to compute a call for which context_axes() is not 0: the keys
// stay split, in a ring, or the heads are split instead of the sequence. In a
// reproducible run, other calls may have to split the heads in another way,
// too.
struct InContext {
  std::array<const Spec*, 3> in, heads;  // q, k and v
  AxisMask axes;

  InContext(const Spec* q, const Spec* k, const Spec* v)
      : in{q, k, v}, axes(context_axes(q, k, v)) {
    // A reproducible run does not add the gradients of a head of k and v, as
    // ranks that share it would. So each rank gets all queries of its heads.
    bool apart = RankContext::current().reproducible;
    for (const Spec* x : in)
      apart &= x->ndim() == 4 && x->shape()[2] > 0 &&
               x->dim(2).kind() == Dim::Kind::kLeaf &&
               !(x->dim(2).axes() & ~q->dim(2).axes());
    std::vector<int> on;
    if (apart) on = q->dim(2).split().axes();
    for (int a = 0; a < q->mesh().num_axes(); ++a)
      if (axes >> a & 1) on.push_back(a);
    for (size_t i = 0; i < in.size(); ++i)
      heads[i] =
          axes || apart
              ? with_heads_on(in[i], on,
                              apart ? in[i]->shape()[2] / k->shape()[2] : 0)
              : in[i];
  }

  // Whether the call may be computed with other ways than its rule's.
  bool any() const { return axes || heads[0] != in[0]; }

  int64_t bytes(bool ring) const {
    return ring ? ring_bytes(in[0], in[1], in[2]) : heads_bytes(in[0], heads);
  }

  bool may(bool ring, const AttentionArgs& args) const {
    const auto wanted = static_cast<ContextParallel>(args.context);
    if (!axes) return !ring;
    // A ring adds the keys in the order in which they arrive.
    if (wanted == ContextParallel::kAuto && RankContext::current().reproducible)
      return !ring;
    if (wanted != ContextParallel::kAuto)
      return ring == (wanted == ContextParallel::kRing);
    const int64_t with_ring = bytes(true), with_heads = bytes(false);
    return args.memory_bytes == 0 ||
           std::max(with_ring, with_heads) <= args.memory_bytes ||
           ring == (with_ring <= with_heads);
  }

  // About the share of the (query, key) pairs whose scores are computed.
  double share_of_pairs(const AttentionArgs& args) const {
    if (!args.window) return args.causal ? 0.5 : 1;
    const int64_t s = in[0]->shape()[1], t = in[1]->shape()[1];
    return static_cast<double>(
               score_pairs({{0, s}}, {{0, t}}, true, args.window)) /
           std::max(static_cast<double>(s * t), 1.0);
  }

  // The candidate for a ring or for split heads. Its price is for a forward and
  // a backward pass.
  Candidate candidate(bool ring, const AttentionArgs& args,
                      Planner& planner) const {
    const auto [q, k, v] = in;
    const Mesh& mesh = q->mesh();
    // c.points counts only one rank's batches and heads. In the operator's
    // OpWork, a point stands for the 2 products of the forward pass. Both
    // passes have 2 + 5 products, 3.5 times as many.
    Candidate c;
    c.points = 3.5 * static_cast<double>(q->shape()[1]) *
               static_cast<double>(k->shape()[1]) *
               static_cast<double>(q->shape()[3]) *
               static_cast<double>(q->dim(0).largest(mesh)) *
               static_cast<double>(q->dim(2).largest(mesh)) *
               share_of_pairs(args);
    if (!ring) {
      c.in.assign(heads.begin(), heads.end());
      if (const int64_t whole = q->dim(2).largest(mesh))
        c.share = static_cast<double>(heads[0]->dim(2).largest(mesh)) /
                  static_cast<double>(whole);
      // choose() adds the price of the moves to c.in. The result returns to the
      // layout of q. In the backward pass, the gradients of q, k, v and the
      // result make the reverse moves.
      c.other_ps = 2 * planner.plan(heads[0], q).time_ps;
      for (size_t i = 0; i < in.size(); ++i)
        c.other_ps += planner.plan(in[i], heads[i]).time_ps;
      return c;
    }
    const Spec* const there = beside(v, k);
    c.in = {q, k, there};
    const IntervalList keys{{0, k->shape()[1]}};
    int64_t all = 0, most = 0;
    for (const IntervalList& queries : parts_of(q->dim(1), mesh)) {
      const int64_t pairs =
          score_pairs(queries, keys, args.causal, args.window);
      all += pairs;
      most = std::max(most, pairs);
    }
    c.share = all ? static_cast<double>(most) / static_cast<double>(all) : 0;
    Layout next_k = k->layout(), next_v = there->layout();
    next_k.dims[1] = next_v.dims[1] = internal::passed_on(k->dim(1), mesh, 1);
    const Move moves[] = {{k, k->with(next_k)}, {there, v->with(next_v)}};
    // Blocks go around in the forward and in the backward pass, and their
    // gradients return to the owners. Only the time that the work does not hide
    // counts.
    const auto steps = static_cast<int64_t>(
        internal::ring_steps(q->dim(1), k->dim(1), mesh, args).size());
    const int64_t sent = 3 * (std::min(mesh.size_of(axes), steps) - 1) *
                         planner.plan(moves).time_ps;
    const int64_t hidden =
        planner.cost().work_ps(kFlopsPerPoint * c.points * c.share, 0);
    c.other_ps = std::max<int64_t>(sent - hidden, 0);
    return c;
  }
};

bool is_ring(const Decision& d) { return !d.in[1]->dim(1).whole(); }

// q, k, v, [mask, or ids] -> out, and lse, the log of each query's sum of
// exponentials, for the gradient.
class AttentionOp : public Op {
 public:
  AttentionOp()
      : Op("attention", {.work = {kFlopsPerPoint}, .saves_outputs = true}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return internal::attention_rule(name(), shapes, attrs.as<AttentionArgs>(),
                                    false);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs& attrs) const override {
    check_dtypes(name(), in, 3, attrs);
    return {in[0], kernels::stat_of(in[0])};
  }
  std::vector<Way> ways(std::span<const OpInput> in,
                        const Attrs& attrs) const override {
    AttentionArgs args = attrs.as<AttentionArgs>();
    if (args.length || args.ring) return {};
    const InContext context(in[0].spec, in[1].spec, in[2].spec);
    if (!context.any()) return {};
    std::vector<Way> ways;
    for (const bool ring : {true, false}) {
      if (!context.may(ring, args)) continue;
      args.ring = ring;
      Way& way = ways.emplace_back(
          context.candidate(ring, args, RankContext::current().planner), args);
      for (const OpInput& more : in.subspan(3))
        way.layouts.in.push_back(more.spec);
    }
    return ways;
  }
  std::vector<Sample> samples() const override {
    return attention_samples(false);
  }

  void compute(Compute& c) const override {
    internal::AttentionCall(c, 3).forward();
  }

  InputGradients gradient(const GradientCall& c) const override {
    check_first_only(c);
    const bool masked = c.inputs.size() > 3;
    // The fused kernel is not differentiable. It does not compute the gradient
    // of a mask, nor any gradient if AttentionOptions::length is set.
    if (grad_enabled() || (masked && c.needed[3]) ||
        c.attrs.as<AttentionArgs>().length)
      return composed(c);
    std::vector<DistTensor> in(c.inputs.begin(), c.inputs.begin() + 3);
    in.insert(in.end(), {c.outputs[0], c.outputs[1], c.cotangents[0]});
    in.insert(in.end(), c.inputs.begin() + 3, c.inputs.end());
    const Assignment a = inherited(c);
    AttentionArgs args = c.attrs.as<AttentionArgs>();
    args.ring = is_ring(*c.decision);
    InputGradients back = apply(op_of<AttentionBackward>(), in, args, &a);
    back.resize(c.inputs.size());
    return back;
  }

 private:
  static InputGradients composed(const GradientCall& c);
};

// `allowed` is true where a query may attend to a key, and `added` is added to
// the scores. Both broadcast to the scores [b, g, r, s, t], with r query heads
// for each of g key heads. `allowed` is undefined if nothing is forbidden, and
// `added` if nothing is added.
struct Masks {
  DistTensor allowed, added;
};

Masks masks_of(const GradientCall& c, const Shape& grouped, DType stat) {
  const DistTensor& q = c.inputs[0];
  const int64_t s = grouped[3], t = grouped[4];
  Masks m;
  const AttentionArgs& args = c.attrs.as<AttentionArgs>();
  const int64_t length = args.length ? args.length : s;
  const DistTensor keys = unsqueeze(arange(t, q.mesh()), 0);
  const auto queries = [&](int64_t before) {
    return unsqueeze(
        arange(s, q.mesh()) + static_cast<double>(length - s - before), 1);
  };
  if (args.causal) m.allowed = le(keys, queries(0));
  if (args.window)
    m.allowed = logical_and(m.allowed, gt(keys, queries(args.window)));
  if (args.length && !args.causal)
    m.allowed = lt(keys, full({}, static_cast<double>(length), q.mesh(), {},
                              keys.dtype()));
  if (c.inputs.size() < 4) return m;
  DistTensor mask = c.inputs[3];
  if (c.attrs.as<AttentionArgs>().documents)
    mask = eq(reshape(mask, {grouped[0], 1, s, 1}),
              reshape(c.inputs[4], {grouped[0], 1, 1, t}));
  Shape shape = mask.shape();
  if (shape.size() >= 3) {  // splits h into [g, r], as the scores have it
    const int at = shape.size() - 3;
    const bool whole = shape[at] == grouped[1] * grouped[2];
    shape.insert(at + 1, whole ? grouped[2] : 1);
    if (whole) shape[at] = grouped[1];
    mask = reshape(mask, shape);
  }
  DistTensor may = mask;
  if (mask.dtype() != DType::kBool) {
    // A mask of minus infinity forbids a score. It is not added, because the
    // gradient would be NaN.
    may = gt(mask, full({}, -kInfinity, q.mesh(), {}, stat));
    m.added = where(may, mask, full({}, 0, q.mesh(), {}, stat));
  }
  m.allowed = m.allowed.defined() ? logical_and(m.allowed, may) : may;
  return m;
}

// Computes the gradients with differentiable operators. The heads of q become
// two dimensions: [kv heads, query heads per kv head].
InputGradients AttentionOp::composed(const GradientCall& c) {
  const DType type = c.inputs[0].dtype(), stat = kernels::stat_of(type);
  const Shape qs = c.inputs[0].shape(), ks = c.inputs[1].shape();
  const double scale = c.attrs.as<AttentionArgs>().scale_of(qs[3]);
  const int64_t group = qs[2] / std::max<int64_t>(ks[2], 1);
  const Shape split_heads{qs[0], qs[1], ks[2], group, qs[3]};
  auto wide = [&](const DistTensor& x) {
    return x.dtype() == stat ? x : cast(x, stat);
  };
  const DistTensor q = reshape(wide(c.inputs[0]), split_heads);
  const DistTensor k = wide(c.inputs[1]), v = wide(c.inputs[2]);
  const DistTensor dout = reshape(wide(c.cotangents[0]), split_heads);
  const Masks mask = masks_of(c, {qs[0], ks[2], group, qs[1], ks[1]}, stat);

  DistTensor score = einsum("bsgrd,btgd->bgrst", {q, k}) * scale;
  DistTensor slope;  // of the cap: the derivative of y * cap by the score
  if (const double cap = c.attrs.as<AttentionArgs>().soft_cap; cap != 0) {
    const DistTensor y = tanh(score * (1 / cap));
    score = y * cap;
    slope = 1 - square(y);
  }
  if (mask.added.defined()) score = score + mask.added;
  // Forbidden scores get a finite value before the softmax, and 0 after it. So
  // a query that may attend to nothing gives zeros instead of NaN.
  auto forbid = [&](const DistTensor& x, double value) {
    if (!mask.allowed.defined()) return x;
    return where(mask.allowed, x, full({}, value, x.mesh(), {}, stat));
  };
  const DistTensor p = forbid(softmax(forbid(score, kLowest), -1), 0);
  const DistTensor dp = einsum("bsgrd,btgd->bgrst", {dout, v});
  // ds is the gradient of the scores after the cap and the mask, and dscore
  // that of the scores before both.
  const DistTensor ds = p * (dp - sum(p * dp, {-1}, true));
  const DistTensor dscore = slope.defined() ? ds * slope : ds;
  InputGradients back{
      reshape(einsum("bgrst,btgd->bsgrd", {dscore, k}) * scale, qs),
      einsum("bgrst,bsgrd->btgd", {dscore, q}) * scale,
      einsum("bgrst,bsgrd->btgd", {p, dout})};
  for (DistTensor& g : back)
    if (g.dtype() != type) g = cast(g, type);
  back.resize(c.inputs.size());
  if (c.inputs.size() < 4 || !c.needed[3]) return back;
  DistTensor d =
      sum_to(reshape(ds, {qs[0], qs[2], qs[1], ks[1]}), c.inputs[3].shape());
  if (d.dtype() != type) d = cast(d, type);
  back[3] = d;
  return back;
}

void check_documents(const DistTensor& q, const DistTensor& k,
                     const DistTensor& ids, const DistTensor& mask) {
  DT_CHECK(!mask.defined(), "attention",
           "got both documents and a mask; pass one of them, or include the "
           "documents in the mask");
  DT_CHECK(q.ndim() >= 2 && k.ndim() >= 2 && q.size(1) == k.size(1) &&
               ids.shape() == Shape({q.size(0), q.size(1)}) &&
               (ids.dtype() == DType::kI32 || ids.dtype() == DType::kI64),
           "attention",
           "documents are {}{}, q is {} and k {}; pass documents of i32 or i64 "
           "and of shape [b, s], q as [b, s, heads, d] and k as [b, s, "
           "kv_heads, d]",
           name(ids.dtype()), to_string(ids.shape()), to_string(q.shape()),
           to_string(k.shape()));
}

void check_window(const AttentionOptions& o) {
  internal::check_window_and_cap("attention", o.window, o.soft_cap);
  DT_CHECK(o.window == 0 || o.causal, "attention",
           "window is {}, but causal is false; set causal, or write a window "
           "of 0",
           o.window);
}

AttentionArgs args_of(const AttentionOptions& o) {
  return {.causal = o.causal,
          .scale = o.scale,
          .ring = false,
          .documents = o.documents.defined(),
          .length = o.length,
          .context = static_cast<int64_t>(o.context),
          .memory_bytes = o.memory_bytes,
          .window = o.window,
          .soft_cap = o.soft_cap};
}

// The sum of 1 ... n.
int64_t triangle(int64_t n) { return n > 0 ? n * (n + 1) / 2 : 0; }

}  // namespace

int64_t score_pairs(const IntervalList& queries, const IntervalList& keys,
                    bool causal, int64_t window) {
  if (!causal) return length(queries) * length(keys);
  int64_t pairs = 0;
  // Query i meets i + 1 - k.lo keys of [k.lo, k.hi), at least 0 and at most all
  // of them. A window takes away the keys that query i - window would meet.
  for (const Interval& q : queries)
    for (const Interval& k : keys) {
      const auto met = [&](int64_t lo, int64_t hi) {
        return triangle(hi - k.lo) - triangle(lo - k.lo) - triangle(hi - k.hi) +
               triangle(lo - k.hi);
      };
      pairs += met(q.lo, q.hi);
      if (window && window < q.hi - k.lo)
        pairs -= met(q.lo - window, q.hi - window);
    }
  return pairs;
}

ContextParallel parse_context(std::string_view text) {
  for (ContextParallel c : {ContextParallel::kAuto, ContextParallel::kRing,
                            ContextParallel::kAllToAll})
    if (text == name(c)) return c;
  fail("context",
       "there is no context parallelism \"{}\"; write auto, ring or all-to-all",
       text);
}

std::string_view name(ContextParallel c) {
  constexpr std::string_view kNames[] = {"auto", "ring", "all-to-all"};
  return kNames[static_cast<size_t>(c)];
}

int64_t context_bytes(const Spec* q, const Spec* k, const Spec* v,
                      const AttentionOptions& options) {
  if (!context_axes(q, k, v)) return 0;
  const OpInput in[] = {{q}, {k}, {v}};
  return InContext(q, k, v).bytes(
      is_ring(*decide(op_of<AttentionOp>(), in, args_of(options))));
}

DistTensor attention(const DistTensor& q, const DistTensor& k,
                     const DistTensor& v, const AttentionOptions& options,
                     const DistTensor& mask) {
  check_defined("attention", {q, k, v});
  DT_CHECK(options.memory_bytes >= 0, "attention",
           "memory_bytes is {}; write 0 (no limit) or more",
           options.memory_bytes);
  check_window(options);
  std::vector<DistTensor> in{q, k, v};
  if (mask.defined()) in.push_back(mask);
  const DistTensor& ids = options.documents;
  if (ids.defined()) {
    check_documents(q, k, ids, mask);
    in.insert(in.end(), {ids, ids});
  }
  const int64_t length = options.length;
  if (length != 0 && q.ndim() == 4 && k.ndim() == 4) {
    DT_CHECK(!ids.defined(), "attention",
             "got both documents and a length of {}; leave one of them out",
             length);
    const int64_t most = k.size(1),
                  least = options.causal ? std::max<int64_t>(q.size(1), 1) : 1;
    DT_CHECK(
        least <= length && length <= most, "attention",
        "length is {} for {}attention of q {} and k {}; write 0 (all keys){}",
        length, options.causal ? "causal " : "", to_string(q.shape()),
        to_string(k.shape()),
        least > most    ? ""
        : least == most ? fmt::format(", or {}", most)
                        : fmt::format(", or {} to {}", least, most));
  }
  const DistTensor y = apply(op_of<AttentionOp>(), in, args_of(options))[0];
  // If the heads were split instead of the sequence, the result is moved to the
  // layout of q.
  const AxisMask axes = context_axes(q.spec(), k.spec(), v.spec());
  if (!axes || length || y.spec()->dim(1).axes() & axes) return y;
  Layout back = q.layout();
  back.partials.clear();
  const Scoped<std::string_view> op(RankContext::current().op,
                                    op_of<AttentionOp>().name());
  return relayout(y, q.spec()->with(back));
}

static const OpFamily kFamily("attention", [] {
  return OpList{&op_of<AttentionOp>(), &op_of<AttentionBackward>(),
                &internal::rotary_operator()};
});

DistTensor scaled_dot_product_attention(const DistTensor& q,
                                        const DistTensor& k,
                                        const DistTensor& v,
                                        const DistTensor& mask,
                                        const AttentionOptions& options) {
  const auto turned = [](const DistTensor& x) { return transpose(x, 1, 2); };
  return turned(attention(turned(q), turned(k), turned(v), options, mask));
}

}  // namespace dtensor
