// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/experts.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/experts_parts.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor {
namespace {

using Values = SampleInput::Values;

// The rows of one call, and where they go. There is one row for each (token,
// choice). The ranks along `axes` (a group) exchange rows. The list of all rows
// of the group is ordered by expert, and the experts by the rank that holds
// them. So are the rows of each rank.
struct Routing {
  AxisMask axes = 0;        // 0: no exchange
  std::vector<Region> out;  // by member: where in the list its tokens' rows are
  std::vector<Region> in;   // by member: where its experts' rows are
  // For each row of this rank's tokens, in i64: the index of the token, and
  // that of the (token, choice) in the flat ids [tokens, k].
  Tensor tokens, choices;
  std::vector<int64_t> begins;  // each local expert's first row, then the end
  // In a reproducible run: the leaf of each row of this rank's experts, i64.
  // Rows of one expert and one leaf are neighbours, in the order of the tokens.
  std::vector<int64_t> leaves;
  int64_t sent() const { return tokens.numel(); }
  int64_t here() const { return begins.back(); }
};

// Data of the forward pass that the gradient needs.
struct Kept {
  // The inputs' specs in the forward pass. They may differ in the backward
  // pass, which sums over the tokens, so that only one rank may hold a token.
  std::vector<const Spec*> in;
  Routing routing;
  Tensor x, gate, up;  // for the rows of this rank's experts
  Tensor y;            // the results for the rows of this rank's tokens

  // Whether the forward pass kept its data, and c's inputs have the same specs.
  bool serves(const Compute& c) const {
    return y.defined() &&
           std::equal(in.begin(), in.end(), c.decision.in.begin());
  }
};

struct ExpertsArgs {
  static constexpr Fields kFields = {"sequence"};
  int64_t sequence = 0;
};

Tensor to_device(const std::vector<int64_t>& list) {
  return Tensor::from({static_cast<int64_t>(list.size())}, list.data());
}

// How many of n choices each expert gets if they are spread evenly.
std::vector<int64_t> even_counts(int64_t n, int64_t experts) {
  std::vector<int64_t> counts;
  for (int64_t e = 0; e < experts; ++e)
    counts.push_back((e + 1) * n / experts - e * n / experts);
  return counts;
}

// All experts, ordered by the member of the group that holds them. begins[m] is
// where the experts of member m begin, and `me` is this rank's position in the
// group.
struct Owners {
  std::vector<int64_t> experts, begins{0};
  size_t me = 0;
};
Owners owners_of(const Compute& c, AxisMask axes) {
  Owners o;
  for (int64_t r : c.mesh().group(axes, c.coord())) {
    const Coord at = c.mesh().coordinate(r);
    if (at == c.coord()) o.me = o.begins.size() - 1;
    const Region region = c.decision.in[kGate]->region(at);
    for (const Interval& held : region[0])
      for (int64_t e = held.lo; e < held.hi; ++e) o.experts.push_back(e);
    o.begins.push_back(static_cast<int64_t>(o.experts.size()));
  }
  return o;
}

// The number of rows that each member has for each expert, [member, expert].
std::vector<int64_t> counts_of(Compute& c, AxisMask axes,
                               std::span<const int64_t> ids) {
  const int64_t experts = c.global_size('e');
  if (c.context.dry_run) {
    std::vector<int64_t> all;
    for (int64_t r : c.mesh().group(axes, c.coord())) {
      const Coord at = c.mesh().coordinate(r);
      const int64_t n = numel(c.decision.in[kIds]->local_shape(at));
      for (int64_t count : even_counts(n, experts)) all.push_back(count);
    }
    return all;
  }
  std::vector<int64_t> mine(static_cast<size_t>(experts));
  for (int64_t e : ids)
    if (e >= 0 && e < experts) ++mine[static_cast<size_t>(e)];
  return axes ? c.gather_numbers(axes, mine) : mine;
}

// Takes this many exchanges of all rows from the budget, as if the rows were
// spread evenly. All ranks must take the same number of bytes, but only the
// members of a group know the actual sizes of its exchanges.
void allow_exchanges(Compute& c, int64_t times) {
  const AxisMask axes = c.axes_of('e');
  if (!axes) return;
  const int64_t ranks = c.mesh().size_of(axes);
  const int64_t rows =
      c.decision.in[kX]->largest_part_bytes() * c.global_size('k');
  c.allow(StepKind::kAllToAll, times * (rows - rows / ranks));
}

Routing route(Compute& c) {
  Routing r;
  r.axes = c.axes_of('e');
  const auto experts = static_cast<size_t>(c.global_size('e'));
  const int64_t hidden = c.global_size('h'), k = c.global_size('k');
  const std::vector<int64_t> ids = c.in[kIds].to_integers();
  const Owners owners = owners_of(c, r.axes);
  const std::vector<int64_t> counts = counts_of(c, r.axes, ids);
  const size_t members = owners.begins.size() - 1;

  // The rows of the whole group are ordered by expert, and by sending member
  // within an expert. The rows for the experts of one member are then one
  // range.
  std::vector<IntervalList> leave(members);
  std::vector<int64_t> ends{0};  // of each expert's rows
  for (int64_t e : owners.experts) {
    int64_t at = ends.back();
    for (size_t m = 0; m < members; ++m) {
      const int64_t n = counts[m * experts + static_cast<size_t>(e)];
      if (n == 0) continue;
      if (!leave[m].empty() && leave[m].back().hi == at)
        leave[m].back().hi += n;
      else
        leave[m].push_back({at, at + n});
      at += n;
    }
    ends.push_back(at);
  }
  const IntervalList columns{{0, hidden}};
  for (size_t m = 0; m < members; ++m) {
    const int64_t lo = ends[static_cast<size_t>(owners.begins[m])],
                  hi = ends[static_cast<size_t>(owners.begins[m + 1])];
    r.in.push_back(
        {lo < hi ? IntervalList{{lo, hi}} : IntervalList{}, columns});
    r.out.push_back({leave[m], columns});
  }
  for (int64_t o = owners.begins[owners.me]; o <= owners.begins[owners.me + 1];
       ++o)
    r.begins.push_back(ends[static_cast<size_t>(o)] -
                       ends[static_cast<size_t>(owners.begins[owners.me])]);

  // The rows of this rank's tokens, in that order.
  const int64_t sent = experts ? length(r.out[owners.me][0]) : 0;
  std::vector<int64_t> next(experts), tokens(static_cast<size_t>(sent)),
      choices(static_cast<size_t>(sent));
  int64_t at = 0;
  for (int64_t e : owners.experts) {
    next[static_cast<size_t>(e)] = at;
    at += counts[owners.me * experts + static_cast<size_t>(e)];
  }
  if (!c.context.dry_run)
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= static_cast<int64_t>(experts)) continue;
      const auto row = static_cast<size_t>(next[static_cast<size_t>(ids[i])]++);
      choices[row] = static_cast<int64_t>(i);
      tokens[row] = static_cast<int64_t>(i) / k;
    }
  r.tokens = to_device(tokens);
  r.choices = to_device(choices);
  if (c.context.reproducible) {
    const int64_t given = c.attrs.as<ExpertsArgs>().sequence,
                  n = c.global_size('t'), sequence = given ? given : n;
    const Dim& dim = c.decision.in[kX]->dim(0);
    DT_CHECK(between_expert_leaves(dim, c.mesh(), sequence), c.op.name(),
             "the tokens of sequences of {} are split as {}, inside a run of "
             "{}; split them between sequences, or at multiples of {} in a "
             "sequence",
             sequence, c.decision.in[kX]->to_string(), kExpertLeaf,
             kExpertLeaf);
    std::vector<int64_t> all;
    for (const Interval& part : c.ranges_of('t'))
      for (int64_t at = part.lo; at < part.hi; ++at) all.push_back(at);
    const int64_t each = (sequence + kExpertLeaf - 1) / kExpertLeaf;
    for (int64_t& t : tokens) {
      t = c.context.dry_run ? 0 : all[static_cast<size_t>(t)];
      t = t / sequence * each + t % sequence / kExpertLeaf;
    }
    Tensor leaves = to_device(tokens).reshape({sent, 1});
    if (r.axes) {
      const auto narrow = [](std::vector<Region> regions) {
        for (Region& region : regions) region[1] = {{0, 1}};
        return regions;
      };
      leaves = c.exchange(leaves, r.axes, narrow(r.out), narrow(r.in));
    }
    r.leaves = leaves.to_integers();
  }
  return r;
}

// Where each leaf of the rows [lo, hi) ends, counted from lo.
std::vector<int64_t> leaf_ends(const Routing& r, int64_t lo, int64_t hi) {
  std::vector<int64_t> ends;
  for (int64_t i = lo, begin = lo; i < hi && !r.leaves.empty(); ++i) {
    const bool ends_here = i + 1 == hi || i + 1 - begin == kExpertLeaf ||
                           r.leaves[static_cast<size_t>(i)] !=
                               r.leaves[static_cast<size_t>(i + 1)];
    if (!ends_here) continue;
    ends.push_back(i + 1 - lo);
    begin = i + 1;
  }
  return ends;
}

// dispatch() sends the rows of this rank's tokens to the ranks that hold their
// experts. combine() sends such rows back.
Tensor dispatch(Compute& c, const Routing& r, const Tensor& rows) {
  return r.axes ? c.exchange(rows, r.axes, r.out, r.in) : rows;
}
Tensor combine(Compute& c, const Routing& r, const Tensor& rows) {
  return r.axes ? c.exchange(rows, r.axes, r.in, r.out) : rows;
}

// The rows of `from` whose numbers are in `index`, as [index size, n].
Tensor taken(Compute& c, const Rows& from, const Tensor& index) {
  const Tensor to = c.scratch({index.numel(), from.n}, from.t.dtype());
  c.run(kernels::Embedding{.table = from,
                           .count = index.numel(),
                           .ids = index.data(),
                           .hi = from.rows,
                           .out = to.mutable_data()});
  return to;
}
// Sets `to` [n, m] to 0, then adds rows[i] to its row index[i] for every i.
void put(Compute& c, const Tensor& rows, const Tensor& index,
         const Tensor& to) {
  c.run(kernels::EmbeddingBackward{.dy = Rows(rows),
                                   .ids = index.data(),
                                   .hi = to.shape()[0],
                                   .size = to.shape()[0],
                                   .dtable_type = to.dtype(),
                                   .dtable = to.mutable_data()});
}

// Returns rows[i] * factor[i] for each i, for contiguous rows [n, m] and factor
// [n, 1].
Tensor scaled(Compute& c, const Tensor& rows, const Tensor& factor) {
  const Tensor out = c.scratch(rows.shape(), rows.dtype());
  c.run(kernels::Binary{.index = fn::index_of<fn::Mul>,
                        .of = {.type = rows.dtype(),
                               .shape = rows.shape(),
                               .out = out.mutable_data(),
                               .in = {rows.data(), factor.data()},
                               .strides = {rows.strides(), Shape{1, 0}}}});
  return out;
}

Tensor weights_of(Compute& c, const Routing& r) {
  const Tensor w = c.in[kWeights].to_contiguous();
  return taken(c, Rows(w.reshape({w.numel(), 1})), r.choices);
}

// A matrix inside a local tensor, as an operand of a product.
struct Matrix {
  const Tensor& t;
  int64_t first, rows, cols, row_stride, col_stride;
  const void* data() const {
    const auto* base = static_cast<const char*>(t.data());
    return base ? base + first * size_of(t.dtype()) : nullptr;
  }
  Matrix transposed() const {
    return {t, first, cols, rows, col_stride, row_stride};
  }
};
Matrix rows_of(const Tensor& t, int64_t lo, int64_t hi) {
  const int64_t n = t.shape()[1];
  return {t, lo * n, hi - lo, n, n, 1};
}
Matrix matrix_of(const Tensor& t, int64_t e) {
  return {t,
          e * t.strides()[0],
          t.shape()[1],
          t.shape()[2],
          t.strides()[1],
          t.strides()[2]};
}

// Sets `out` to the matrix product a * b, or adds it to `out` if `add`. `ends`:
// see Gemm::leaf_ends.
void product(Compute& c, const Matrix& a, const Matrix& b, const Matrix& out,
             bool add = false, std::span<const int64_t> ends = {}) {
  if (out.rows * out.cols == 0) return;
  auto* to = static_cast<char*>(out.t.mutable_data());
  if (to) to += out.first * size_of(out.t.dtype());
  if (a.cols == 0) {
    const Shape shape{out.rows, out.cols},
        strides{out.row_stride, out.col_stride};
    if (!add) c.device().fill(c.stream, out.t.dtype(), shape, to, strides, 0);
    return;
  }
  kernels::Gemm g{.type = a.t.dtype(), .c_type = out.t.dtype()};
  g.m = out.rows;
  g.n = out.cols;
  g.k = a.cols;
  g.a = a.data();
  g.a_m = a.row_stride;
  g.a_k = a.col_stride;
  g.b = b.data();
  g.b_k = b.row_stride;
  g.b_n = b.col_stride;
  g.c = to;
  g.c_m = out.row_stride;
  g.c_n = out.col_stride;
  g.accumulate = add;
  g.by_leaves = c.context.reproducible;
  g.leaf_ends = ends;
  c.run(g);
}

// Calls fn(e, lo, hi) for every local expert and its range of rows.
template <class Fn>
void for_each_expert(const Routing& r, Fn&& fn) {
  for (size_t e = 0; e + 1 < r.begins.size(); ++e)
    fn(static_cast<int64_t>(e), r.begins[e], r.begins[e + 1]);
}

// Returns {silu(gate) * up, undefined}. With dy, returns dy times the
// derivatives of silu(gate) * up with respect to gate and to up.
std::pair<Tensor, Tensor> swiglu_rows(Compute& c, const Kept& kept,
                                      const Tensor& dy = {}) {
  const Shape& shape = kept.gate.shape();
  const DType t = kept.gate.dtype();
  const Tensor out = c.scratch(shape, t),
               second = dy.defined() ? c.scratch(shape, t) : Tensor();
  kernels::Binary k{.index = fn::index_of<fn::SwiGlu>,
                    .of = {.type = t,
                           .shape = {out.numel()},
                           .out = out.mutable_data(),
                           .in = {kept.gate.data(), kept.up.data()}}};
  if (dy.defined()) {
    k.by = fn::By::kBoth;
    k.of.second = second.mutable_data();
    k.of.in[2] = dy.data();
  }
  for (Shape& s : k.of.strides) s = {1};
  c.run(k);
  return {out, second};
}

// Runs the forward pass until the rows have returned from the experts. They are
// not weighted yet.
Kept run_forward(Compute& c) {
  allow_exchanges(c, 2);
  Kept kept;
  kept.in.assign(c.decision.in.begin(), c.decision.in.begin() + kDy);
  const Routing& r = kept.routing = route(c);
  const DType t = c.in[kX].dtype();
  kept.x = dispatch(c, r, taken(c, Rows(c.in[kX]), r.tokens));
  const int64_t ffn = c.in[kGate].shape()[1];
  kept.gate = c.scratch({r.here(), ffn}, t);
  kept.up = c.scratch({r.here(), ffn}, t);
  for_each_expert(r, [&](int64_t e, int64_t lo, int64_t hi) {
    const Matrix x = rows_of(kept.x, lo, hi);
    product(c, x, matrix_of(c.in[kGate], e).transposed(),
            rows_of(kept.gate, lo, hi));
    product(c, x, matrix_of(c.in[kUp], e).transposed(),
            rows_of(kept.up, lo, hi));
  });
  const Tensor inner = swiglu_rows(c, kept).first;
  const Tensor y = c.scratch(kept.x.shape(), t);
  for_each_expert(r, [&](int64_t e, int64_t lo, int64_t hi) {
    product(c, rows_of(inner, lo, hi), matrix_of(c.in[kDown], e).transposed(),
            rows_of(y, lo, hi));
  });
  kept.y = combine(c, r, y);
  return kept;
}

// The rule `text` for these shapes.
BoundRule experts_rule(std::string_view op, std::string_view text,
                       const std::vector<Shape>& shapes) {
  const Shape &x = shapes[kX], &ids = shapes[kIds], &gate = shapes[kGate];
  DT_CHECK(x.size() == 2 && ids.size() == 2 && gate.size() == 3, op,
           "x has shape {}, ids {} and gate {}; write [tokens, hidden], "
           "[tokens, k] and [experts, ffn, hidden]",
           to_string(x), to_string(ids), to_string(gate));
  std::string rule(text);
  // The results of experts are rounded before they are weighted, so a
  // reproducible run does not split what they sum.
  if (sum_granule() > 1) rule.replace(rule.find("fh"), 1, "f!");
  return BoundRule(Rule(rule), shapes, op);
}

void check_types(std::string_view op, std::span<const DType> in) {
  check_float(op, in[kX]);
  for (size_t i = kX; i < in.size(); ++i)
    DT_CHECK(i == kIds || in[i] == in[kX], op,
             "input 0 is {} and input {} is {}; cast one to the other's type",
             name(in[kX]), i, name(in[i]));
  DT_CHECK(in[kIds] == DType::kI64, op,
           "the experts' ids are {}, but must be i64; write cast(ids, "
           "DType::kI64)",
           name(in[kIds]));
}

std::vector<Sample> experts_samples(bool backward) {
  std::vector<Sample> list;
  struct {
    int64_t tokens, hidden, k, experts, ffn;
  } sizes[] = {{5, 3, 2, 4, 5}, {7, 2, 1, 3, 3}, {3, 5, 3, 1, 2}};
  for (const auto& n : sizes) {
    Sample s;
    s.inputs = {{{n.tokens, n.hidden}},
                {{n.tokens, n.k}, Values::kIndex, n.experts},
                {{n.tokens, n.k}},
                {{n.experts, n.ffn, n.hidden}},
                {{n.experts, n.ffn, n.hidden}},
                {{n.experts, n.hidden, n.ffn}}};
    if (backward) s.inputs.push_back({{n.tokens, n.hidden}});
    s.attrs = ExpertsArgs{};
    list.push_back(s);
  }
  return list;
}

// The inputs of Experts, dy -> dx, dweights, dgate, dup, ddown. The outputs are
// f32 for half types; the last three may be exact.
class ExpertsBackward : public Op {
 public:
  // Two exchanges are priced: rows of the tokens' cotangents go to the experts,
  // and rows of x's gradient return.
  explicit ExpertsBackward(bool exact)
      : Op("experts_backward", {.work = {12, {'e', "tkh", 2}},
                                .differentiable = false,
                                .data_decide_bytes = true}),
        exact_(exact) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return experts_rule(name(),
                        "th!,tk!,tk,e~fh,efh,ehf,th->th,tk,efh,efh,ehf | "
                        "linear 6; link t e",
                        shapes);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_types(name(), in);
    std::vector list(5, kernels::stat_of(in[kX]));
    if (exact_) std::fill(list.begin() + 2, list.end(), DType::kExact);
    return list;
  }
  std::vector<Sample> samples() const override { return experts_samples(true); }

  void compute(Compute& c) const override {
    Kept again;
    const auto* kept = static_cast<const Kept*>(c.attrs.state.get());
    if (!kept || !kept->serves(c)) {
      again = run_forward(c);
      kept = &again;
    }
    allow_exchanges(c, 2);
    const Routing& r = kept->routing;
    const DType t = c.in[kX].dtype();
    const Tensor dy = taken(c, Rows(c.in[kDy]), r.tokens);
    weights_gradient(c, *kept, dy);
    const Tensor dout = dispatch(c, r, scaled(c, dy, weights_of(c, r)));
    const Tensor inner = swiglu_rows(c, *kept).first;
    const Tensor dinner = c.scratch(inner.shape(), t);
    for_each_expert(r, [&](int64_t e, int64_t lo, int64_t hi) {
      product(c, rows_of(dout, lo, hi), matrix_of(c.in[kDown], e),
              rows_of(dinner, lo, hi));
      product(c, rows_of(dout, lo, hi).transposed(), rows_of(inner, lo, hi),
              matrix_of(c.out[4], e), false, leaf_ends(r, lo, hi));
    });
    const auto [dgate, dup] = swiglu_rows(c, *kept, dinner);
    const Tensor dx = c.scratch(kept->x.shape(), t);
    for_each_expert(r, [&, &dgate = dgate, &dup = dup](int64_t e, int64_t lo,
                                                       int64_t hi) {
      const Matrix of_gate = rows_of(dgate, lo, hi),
                   of_up = rows_of(dup, lo, hi), x = rows_of(kept->x, lo, hi),
                   to = rows_of(dx, lo, hi);
      product(c, of_gate, matrix_of(c.in[kGate], e), to);
      product(c, of_up, matrix_of(c.in[kUp], e), to, true);
      const std::vector<int64_t> ends = leaf_ends(r, lo, hi);
      product(c, of_gate.transposed(), x, matrix_of(c.out[2], e), false, ends);
      product(c, of_up.transposed(), x, matrix_of(c.out[3], e), false, ends);
    });
    put(c, combine(c, r, dx), r.tokens, c.out[0]);
  }

 private:
  // Sets the gradient of the weights: for each choice, the dot product of the
  // expert's result and the token's cotangent.
  static void weights_gradient(Compute& c, const Kept& kept, const Tensor& dy) {
    const Routing& r = kept.routing;
    const Tensor dot = c.scratch({r.sent(), 1}, c.out[1].dtype());
    c.run(kernels::RowDot{
        .y = Rows(kept.y), .dy = Rows(dy), .dot = dot.mutable_data()});
    put(c, dot, r.choices, c.out[1].reshape({c.out[1].numel(), 1}));
  }

  bool exact_;
};

const Op& backward_op(bool exact) {
  static const ExpertsBackward rounded(false), sums(true);
  return exact ? sums : rounded;
}

// The operator is linear in the weights and in `down`, but its rule has no note
// for them. If `down` were partial, so would be the y that the forward
// pass keeps, from which the gradient of the weights is computed. Partial
// weights would be correct, but do not occur, because routers normalize them.
// With a note for the weights, the proof (tests/ops/proof.h) would also meet
// results whose copies differ in the last bit. The cause is not the operator,
// but a cotangent in a layout such as S1(1|a=1:a): of the two segments of
// dimension 1, every rank has the first, and the axis splits the second. Each
// rank computes the first one together with its piece of the second. These
// pieces differ in size, so kernels round differently, and each rank keeps its
// own copy of the first segment when the second one is gathered. A plain
// product does the same.
class Experts : public Op {
 public:
  // The work per point: three products, with a multiplication and an addition
  // each. The row of each choice goes to its expert and back.
  Experts()
      : Op("experts",
           {.work = {6, {'e', "tkh", 2}}, .data_decide_bytes = true}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return experts_rule(name(), "th!,tk!,tk,e~fh,efh,ehf->th | link t e",
                        shapes);
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_types(name(), in);
    return {in[kX]};
  }
  std::vector<Sample> samples() const override {
    return experts_samples(false);
  }

  void compute(Compute& c) const override {
    Kept kept = run_forward(c);
    const Tensor rows = scaled(c, kept.y, weights_of(c, kept.routing));
    // For half types, the k rows of a token are added up in f32.
    const DType t = c.out[0].dtype(), stat = kernels::stat_of(t);
    const Tensor sum = stat == t ? c.out[0] : c.scratch(c.out[0].shape(), stat);
    put(c, rows, kept.routing.tokens, sum);
    if (stat != t) c.out[0] = converted(sum, t);
    if (auto* state = static_cast<Kept*>(c.attrs.state.get()))
      *state = std::move(kept);
  }

  std::shared_ptr<void> new_state() const override {
    return std::make_shared<Kept>();
  }
  InputGradients gradient(const GradientCall& g) const override {
    if (grad_enabled()) return experts_gradient(g);
    std::vector<DistTensor> in(g.inputs.begin(), g.inputs.end());
    in.push_back(g.cotangents[0]);
    const Assignment a = inherited(g);
    std::vector<DistTensor> d =
        apply(backward_op(has_exact_sums(in[kX].dtype())), in, g.attrs, &a);
    d.insert(d.begin() + kIds, DistTensor());
    for (size_t i : kFloats)
      if (d[i].dtype() != DType::kExact) d[i] = cast(d[i], g.inputs[i].dtype());
    return d;
  }
};

}  // namespace

DistTensor experts(const DistTensor& x, const DistTensor& ids,
                   const DistTensor& weights, const DistTensor& gate,
                   const DistTensor& up, const DistTensor& down,
                   int64_t sequence) {
  DT_CHECK(sequence >= 0, "experts",
           "sequence is {}; write the number of tokens of each sequence, or 0",
           sequence);
  const Op& op = op_of<Experts>();
  const DistTensor in[] = {x, ids, weights, gate, up, down};
  const Attrs args = ExpertsArgs{sequence};
  check_defined("experts", in);
  if (!reproducible(x.dtype())) return apply1(op, in, args);
  std::vector<Shape> shapes;
  for (const DistTensor& t : in) shapes.push_back(t.shape());
  const Assignment a = experts_by_leaves(x, gate, op.bind(shapes, args),
                                         sequence ? sequence : x.size(0));
  return apply1(op, in, args, &a);
}

bool data_decide_bytes(std::string_view name) {
  const Op* op = find_op(name);
  return op && op->facts().data_decide_bytes;
}

static const OpFamily kFamily("experts", [] {
  return OpList{&op_of<Experts>(), &backward_op(false)};
});

}  // namespace dtensor
