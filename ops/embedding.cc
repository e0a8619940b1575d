// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include <algorithm>
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

void check_ids(std::string_view op, DType ids) {
  const std::string_view what = op.starts_with("index") ? "indices" : "ids";
  DT_CHECK(ids == DType::kI32 || ids == DType::kI64, op,
           "the {} are {}, but must be i32 or i64; write cast({}, DType::kI64)",
           what, name(ids), what);
}

struct EmbeddingArgs {
  static constexpr Fields kFields = {"zeros_outside", "dim"};
  bool zeros_outside;
  int64_t dim;  // the ids are indices of this dimension of the table
};

struct EmbeddingBackwardArgs {
  static constexpr Fields kFields = {"vocabulary", "checked", "dim"};
  int64_t vocabulary;  // the table's number of rows
  bool checked;        // an id that names no row is an Error
  int64_t dim;
};

// Which rows the ids name: those of a table [v, h] (embedding()), or the slices
// of any tensor along a dimension (index_select() and index_add()).
enum class Kind : bool { kTable, kTensor };

const Op& forward_op(Kind);
const Op& backward_op(Kind);

// The factors of a table with `ndim` dimensions that come before and after v,
// which is dimension `dim`.
struct OtherFactors {
  OtherFactors(int ndim, int64_t dim)
      : before(kAll.substr(0, static_cast<size_t>(dim))),
        after(kAll.substr(before.size(),
                          static_cast<size_t>(ndim - 1) - before.size())) {}
  static constexpr std::string_view kAll = "hijklmno";
  std::string before, after;
};

// Returns the call's assignment in the form that the rule of its gradient
// needs. The rules order the factors of the table, which has `ndim` dimensions,
// differently: v, the factor of the rows that ids name, is at position `dim` in
// the rule of Embedding, and last in that of EmbeddingBackward. `forward` is
// true if the call is an Embedding.
Assignment turned(const GradientCall& c, int ndim, int64_t dim, bool forward) {
  Assignment a = inherited(c);
  const auto first = a.dims.begin() + dim, end = a.dims.begin() + ndim;
  std::rotate(first, forward ? first + 1 : end - 1, end);
  return a;
}

// x as `outer` matrices [size, n]. `outer` merges the dimensions before `dim`,
// `size` the `count` dimensions from `dim` on, and n those after them.
struct Matrices {
  Matrices(const Tensor& x, int64_t dim, int count) {
    for (int d = 0; d < x.ndim(); ++d)
      (d < dim ? outer : d < dim + count ? size : n) *= x.shape()[d];
    flat = x.reshape({outer * size, n});
  }
  int64_t outer = 1, size = 1, n = 1;
  Tensor flat;
};

// embedding(): table "vh", ids "..." -> "...h". In index_select(), v may be any
// dimension of the table, and the ids' dimensions take its place.
class Embedding : public Op {
 public:
  explicit Embedding(Kind kind)
      : Op(kind == Kind::kTable ? "embedding" : "index_select",
           {.work = {.flops_per_point = 0, .looked_up = 1}}),
        kind_(kind) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const int dims = shapes[0].size();
    DT_CHECK(
        kind_ == Kind::kTensor ? dims > 0 : dims == 2, name(),
        "the {} has shape {}; pass one with {}",
        kind_ == Kind::kTensor ? "tensor" : "table",
        dtensor::to_string(shapes[0]),
        kind_ == Kind::kTensor ? "at least one dimension" : "two dimensions");
    const OtherFactors f(dims, attrs.as<EmbeddingArgs>().dim);
    return BoundRule(Rule(fmt::format("{0}v{1},...->{0}...{1} | linear 0",
                                      f.before, f.after)),
                     shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_ids(name(), in[1]);
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const auto& [v, h, ids] :
         std::vector<std::tuple<int64_t, int64_t, Shape>>{
             {7, 3, {5}}, {5, 3, {3, 4}}, {1, 1, {3}}, {3, 5, {}}})
      list.push_back({{{{v, h}}, {ids, SampleInput::Values::kIndex, v}},
                      EmbeddingArgs{false, 0},
                      true});
    if (kind_ == Kind::kTensor)
      for (int64_t dim : {0, 1, 2})
        list.push_back({{{{5, 5, 5}}, {{4}, SampleInput::Values::kIndex, 5}},
                        EmbeddingArgs{false, dim},
                        true});
    return list;
  }

  void compute(Compute& c) const override {
    const EmbeddingArgs& args = c.attrs.as<EmbeddingArgs>();
    const Matrices matrices(c.in[0], args.dim, 1);
    const Rows table(matrices.flat);
    const Tensor ids = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
    if (!args.zeros_outside) check_range(c, ids);
    // Every id is in at most one range. A look-up in another range gives zeros,
    // so the results for all ranges are added.
    auto look_up = [&](Interval range, int64_t row, const Tensor& to) {
      c.run(kernels::Embedding{.table = table,
                               .ids_type = ids.dtype(),
                               .outer = matrices.outer,
                               .count = ids.numel(),
                               .ids = ids.data(),
                               .lo = range.lo,
                               .hi = range.hi,
                               .at = row,
                               .size = matrices.size,
                               .out = to.mutable_data()});
    };
    const IntervalList ranges = c.ranges_of('v');
    look_up(ranges.empty() ? Interval{} : ranges[0], 0, out);
    int64_t row = ranges.empty() ? 0 : ranges[0].size();
    for (size_t i = 1; i < ranges.size(); row += ranges[i++].size()) {
      Tensor more = c.scratch(out.shape(), out.dtype());
      look_up(ranges[i], row, more);
      row_binary(c, fn::index_of<fn::Add>, out, more, out);
    }
  }

  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor& table = c.inputs[0];
    const int64_t dim = c.attrs.as<EmbeddingArgs>().dim;
    const Assignment a = turned(c, table.ndim(), dim, true);
    DistTensor d = apply1(
        backward_op(kind_), {c.cotangents[0], c.inputs[1]},
        EmbeddingBackwardArgs{table.size(static_cast<int>(dim)), false, dim},
        &a);
    if (d.dtype() != table.dtype()) d = cast(d, table.dtype());
    return {d, {}};
  }

 private:
  void check_range(Compute& c, const Tensor& ids) const {
    const int64_t rows = c.global_size('v');
    check_ids_in(
        c.context, c.op.name(), ids, *c.decision.in[1], rows, {},
        [=, kind = kind_, dim = c.attrs.as<EmbeddingArgs>().dim](int64_t id) {
          return kind == Kind::kTensor
                     ? no_index(rows, dim)(id)
                     : fmt::format(
                           "id {} is not in [0, {}), the rows of the "
                           "table; for zeros write embedding(table, "
                           "ids, {{.zeros_outside = true}})",
                           id, rows);
        });
  }

  Kind kind_;
};

// dy "...h", ids "..." -> the table's gradient "vh"; v may again be elsewhere.
class EmbeddingBackward : public Op {
 public:
  explicit EmbeddingBackward(Kind kind)
      : Op(kind == Kind::kTable ? "embedding_backward" : "index_add",
           {.work = {.flops_per_point = 0}}),
        kind_(kind) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const auto& args = attrs.as<EmbeddingBackwardArgs>();
    const OtherFactors f(shapes[0].size() - shapes[1].size() + 1, args.dim);
    return BoundRule(Rule(fmt::format("{0}...{1},...->{0}v{1} | linear 0",
                                      f.before, f.after)),
                     shapes, name(), {{'v', args.vocabulary}});
  }
  // The output sums many rows, so it is f32 for half types.
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_ids(name(), in[1]);
    return {is_float(in[0]) ? kernels::stat_of(in[0]) : in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const auto& [v, h, ids] :
         std::vector<std::tuple<int64_t, int64_t, Shape>>{
             {7, 3, {5}}, {5, 3, {3, 4}}, {1, 1, {3}}, {3, 5, {}}}) {
      Shape dy = ids;
      dy.push_back(h);
      list.push_back({{{dy}, {ids, SampleInput::Values::kIndex, v}},
                      EmbeddingBackwardArgs{v, true, 0},
                      true});
    }
    if (kind_ == Kind::kTensor)
      for (int64_t dim : {0, 1, 2})
        list.push_back({{{{4, 4, 4}}, {{4}, SampleInput::Values::kIndex, 5}},
                        EmbeddingBackwardArgs{5, true, dim},
                        true});
    return list;
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<EmbeddingBackwardArgs>();
    const Matrices matrices(c.in[0], args.dim, c.in[1].ndim());
    const Rows dy(matrices.flat);
    const Tensor ids = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
    if (args.checked)
      check_ids_in(c.context, c.op.name(), ids, *c.decision.in[1],
                   args.vocabulary, {}, no_index(args.vocabulary, args.dim));
    int64_t row = 0;
    for (const Interval& range : c.ranges_of('v')) {
      c.run(kernels::EmbeddingBackward{
          .dy = dy,
          .ids_type = ids.dtype(),
          .outer = matrices.outer,
          .ids = ids.data(),
          .lo = range.lo,
          .hi = range.hi,
          .at = row,
          .size = out.shape()[static_cast<int>(args.dim)],
          .dtable_type = out.dtype(),
          .accumulate = row > 0,
          .dtable = out.mutable_data()});
      row += range.size();
    }
  }

  // The operator is linear in dy, so its gradient is the look-up.
  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor &dy = c.inputs[0], &ids = c.inputs[1];
    const int64_t dim = c.attrs.as<EmbeddingBackwardArgs>().dim;
    const Assignment a = turned(c, dy.ndim() - ids.ndim() + 1, dim, false);
    // The ids need no check: they were checked before, or may be outside.
    DistTensor d = apply1(forward_op(kind_), {c.cotangents[0], ids},
                          EmbeddingArgs{true, dim}, &a);
    if (d.dtype() != dy.dtype()) d = cast(d, dy.dtype());
    return {d, {}};
  }

 private:
  Kind kind_;
};

const Op& forward_op(Kind kind) {
  static const Embedding table(Kind::kTable), tensor(Kind::kTensor);
  return kind == Kind::kTable ? table : tensor;
}

const Op& backward_op(Kind kind) {
  static const EmbeddingBackward table(Kind::kTable), tensor(Kind::kTensor);
  return kind == Kind::kTable ? table : tensor;
}

// ---- index_put() ----

struct PlacesArgs {
  static constexpr Fields kFields = {"sizes", "unique"};
  Shape sizes;  // of the dimensions that the indices select from
  bool unique;
};

// One vector of indices "m" for each of the first dimensions of a tensor -> the
// places "m" of the elements in these dimensions together, in row-major order.
// With `unique`, only the last of equal places remains, and the others become
// -1. The indices count from the front; an Error names them as they were before
// index_put() added the size to negative ones.
class Places : public Op {
 public:
  Places()
      : Op("index_put_places",
           {.work = {.flops_per_point = 0}, .differentiable = false}) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    std::string text;
    for (size_t i = 0; i < shapes.size(); ++i) text += i == 0 ? "m" : ",m";
    return BoundRule(
        Rule(text + (attrs.as<PlacesArgs>().unique ? "->m!" : "->m")), shapes,
        name());
  }
  std::vector<Sample> samples() const override {
    const auto index = [](int64_t bound) {
      return SampleInput{{5}, SampleInput::Values::kIndex, bound};
    };
    return {{{index(7)}, PlacesArgs{{7}, false}, true},
            {{index(3)}, PlacesArgs{{3}, true}, true},
            {{index(2), index(3)}, PlacesArgs{{2, 3}, true}, true}};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<PlacesArgs>();
    const Tensor& out = c.out[0];
    for (int d = 0; d < args.sizes.size(); ++d) {
      const int64_t n = args.sizes[d];
      const auto i = static_cast<size_t>(d);
      const Tensor index = c.in[i].to_contiguous();
      check_ids_in(c.context, "index_put", index, *c.decision.in[i], n, {},
                   [n, d](int64_t id) {
                     return fmt::format(
                         "index {} is not in [{}, {}), the indices of "
                         "dimension {} of the tensor; pass indices in that "
                         "range",
                         id < 0 ? id - n : id, -n, n, d);
                   });
      if (d == 0) {
        Tensor(out).copy_from(index);
      } else {
        row_unary(c, fn::index_of<fn::MulScalar>, out, out,
                  static_cast<double>(n));
        row_binary(c, fn::index_of<fn::Add>, out, index, out);
      }
    }
    if (args.unique) keep_last(c, numel(args.sizes), out);
  }

 private:
  // Sets all but the last of equal places to -1: finds the last position at
  // which each of the n places occurs, and then the place of each position.
  static void keep_last(Compute& c, int64_t n, const Tensor& places) {
    const int64_t m = places.numel();
    const Tensor last = c.scratch({n}, DType::kI64);
    const auto find = [&](const Tensor& index, const Tensor& found) {
      Tensor(found).fill(-1);
      c.run(kernels::LastPlaces{.rows = 1,
                                .k = index.numel(),
                                .index = index.ptr<int64_t>(),
                                .stride = index.numel(),
                                .hi = found.numel(),
                                .places = found.mutable_ptr<int64_t>()});
    };
    if (m == 0) return;
    find(places, last);
    find(last, places);
  }
};

const Op& places_op() {
  static const Places op;
  return op;
}

// x "n...", values "m...", places "m" -> x with slice i of the values at its
// slice places[i], if this is not negative. Places that are not negative differ
// from each other. m stays whole: if several ranks had a part of the values, a
// part of x would count on one of them only.
class IndexPut : public RuleOp {
 public:
  IndexPut()
      : RuleOp("index_put", "n...,m!...,m->n... | linear 0,1; up 0,1",
               {.work = {.flops_per_point = 0}, .saved_inputs = 0b100}) {}

  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    // Few enough random places of many, so that no two are equal.
    for (const auto& [n, m, rest] :
         std::vector<std::tuple<int64_t, int64_t, Shape>>{
             {5, 1, {3}}, {97, 3, {2}}, {7, 1, {3, 2}}, {7, 1, {}}}) {
      Shape x = {n}, values = {m};
      for (int64_t size : rest) x.push_back(size), values.push_back(size);
      list.push_back(
          {{{x}, {values}, {{m}, SampleInput::Values::kIndex, n}}, {}, true});
    }
    return list;
  }

  void compute(Compute& c) const override {
    const Tensor values = c.in[1].to_contiguous(),
                 places = c.in[2].to_contiguous();
    Tensor& out = c.out[0];
    out.copy_from(c.in[0]);
    const Matrices matrices(out, 0, 1);
    int64_t at = 0;
    for (const Interval& range : c.ranges_of('n')) {
      c.run(kernels::WriteRows{.type = out.dtype(),
                               .count = places.numel(),
                               .n = matrices.n,
                               .rows = values.data(),
                               .ids = places.data(),
                               .lo = range.lo,
                               .hi = range.hi,
                               .at = at,
                               .size = matrices.size,
                               .to = out.mutable_data()});
      at += range.size();
    }
  }

  InputGradients gradient(const GradientCall& g) const override {
    const DistTensor &dy = g.cotangents[0], &places = g.inputs[2];
    DistTensor dx, dvalues;
    if (g.needed[0]) {
      const Assignment a = inherited(g);
      Layout layout = g.decision->in[1]->layout();
      layout.partials.clear();
      const DistTensor none =
          zeros(g.decision->in[1]->shape(), dy.mesh(), layout, dy.dtype());
      dx = apply1(*this, {dy, none, places}, {}, &a);
    }
    if (g.needed[1])
      dvalues = apply1(forward_op(Kind::kTensor), {dy, places},
                       EmbeddingArgs{true, 0});
    return {dx, dvalues, {}};
  }
};

const Op& index_put_op() {
  static const IndexPut op;
  return op;
}

// The index tensors of index_put(), as vectors of one size with indices that
// count from the front.
std::vector<DistTensor> index_vectors(const DistTensor& x,
                                      std::vector<DistTensor> indices) {
  for (size_t i = 0; i < indices.size(); ++i) {
    DistTensor& index = indices[i];
    const DType t = index.dtype();
    DT_CHECK(t == DType::kI32 || t == DType::kI64, "index_put",
             "the indices {} of dimension {} are {}, but must be i32 or i64; "
             "write cast(indices, DType::kI64), or, for a mask, where(mask, "
             "values, x)",
             index.spec()->to_string(), i, name(t));
    index = cast(index, DType::kI64);
    index = where(lt(index, 0), index + x.size(static_cast<int>(i)), index);
  }
  if (indices.size() > 1) indices = broadcast_tensors(indices);
  return indices;
}

void check_vector(std::string_view op, const DistTensor& index) {
  DT_CHECK(index.ndim() <= 1, op,
           "the indices {} are not a vector; flatten() them",
           index.spec()->to_string());
}

}  // namespace

DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& options) {
  return apply1(forward_op(Kind::kTable), {table, ids},
                EmbeddingArgs{options.zeros_outside, 0});
}

DistTensor index_select(const DistTensor& x, int dim, const DistTensor& index) {
  check_defined("index_select", {x, index});
  check_vector("index_select", index);
  if (x.ndim() == 0)
    return reshape(index_select(reshape(x, {1}), dim, index), {});
  if (x.dtype() == DType::kBool)  // a partial sum of bools cannot be reduced
    return cast(index_select(cast(x, DType::kI32), dim, index), DType::kBool);
  const int d = normalize_dim(dim, x.ndim(), "index_select");
  return apply1(forward_op(Kind::kTensor), {x, reshape(index, {-1})},
                EmbeddingArgs{false, d});
}

DistTensor index_add(const DistTensor& x, int dim, const DistTensor& index,
                     const DistTensor& src, Number alpha) {
  check_defined("index_add", {x, index, src});
  check_vector("index_add", index);
  if (x.ndim() == 0)
    return reshape(
        index_add(reshape(x, {1}), dim, index, reshape(src, {1}), alpha), {});
  if (x.dtype() == DType::kBool)  // a sum of bools is their "or"
    return cast(index_add(cast(x, DType::kI32), dim, index,
                          cast(src, DType::kI32), alpha),
                DType::kBool);
  const int d = normalize_dim(dim, x.ndim(), "index_add");
  Shape want = x.shape();
  want[d] = numel(index.shape());
  DT_CHECK(src.shape() == want && src.dtype() == x.dtype(), "index_add",
           "cannot add {} to {} at the indices {} of dimension {}; pass a "
           "tensor of {} and of shape {}",
           src.spec()->to_string(), x.spec()->to_string(),
           index.spec()->to_string(), d, name(x.dtype()),
           dtensor::to_string(want));
  const DistTensor scaled =
      alpha.value == 1 ? src : cast(mul(src, alpha), x.dtype());
  const DistTensor sum =
      apply1(backward_op(Kind::kTensor), {scaled, reshape(index, {-1})},
             EmbeddingBackwardArgs{x.size(d), true, d});
  return x + cast(sum, x.dtype());
}

DistTensor index_put(const DistTensor& x, TensorList indices,
                     const DistTensor& values, bool accumulate) {
  constexpr const char* kOp = "index_put";
  std::vector<DistTensor> all(indices.begin(), indices.end());
  all.insert(all.begin(), x);
  all.push_back(values);
  check_defined(kOp, all);
  const auto count = static_cast<int>(indices.size());
  DT_CHECK(count >= 1 && count <= x.ndim(), kOp,
           "got {} index tensors for {}; pass one for each of its first "
           "dimensions, at least 1 and at most {}",
           count, x.spec()->to_string(), x.ndim());
  DT_CHECK(values.dtype() == x.dtype(), kOp,
           "the values are {}, but the tensor is {}; write cast(values, "
           "x.dtype())",
           name(values.dtype()), name(x.dtype()));
  if (x.dtype() == DType::kBool)  // a sum of bools is their "or"
    return cast(index_put(cast(x, DType::kI32), indices,
                          cast(values, DType::kI32), accumulate),
                DType::kBool);
  std::vector<DistTensor> vectors =
      index_vectors(x, {indices.begin(), indices.end()});
  // The shape of the elements that the indices select, and of x and these
  // elements if all indexed dimensions are one.
  Shape selected = vectors[0].shape(), flat = {1}, rows = {numel(selected)};
  PlacesArgs args{{}, !accumulate};
  for (int d = 0; d < x.ndim(); ++d)
    if (d < count) {
      args.sizes.push_back(x.size(d));
      flat[0] *= x.size(d);
    } else {
      selected.push_back(x.size(d));
      flat.push_back(x.size(d));
      rows.push_back(x.size(d));
    }
  const int more = selected.size() - values.ndim();
  bool fits = more >= 0;
  for (int d = 0; fits && d < values.ndim(); ++d)
    fits = values.size(d) == 1 || values.size(d) == selected[d + more];
  DT_CHECK(fits, kOp,
           "the values {} do not fit the elements of {} that the indices "
           "select; pass values of shape {}, or of one that broadcasts to it",
           values.spec()->to_string(), x.spec()->to_string(),
           dtensor::to_string(selected));
  for (DistTensor& v : vectors) v = reshape(v, {-1});
  const DistTensor places = apply1(places_op(), vectors, args),
                   to = reshape(x, flat),
                   from = reshape(expand(values, selected), rows);
  const DistTensor y =
      accumulate ? to + cast(apply1(backward_op(Kind::kTensor), {from, places},
                                    EmbeddingBackwardArgs{flat[0], false, 0}),
                             x.dtype())
                 : apply1(index_put_op(), {to, from, places});
  return reshape(y, x.shape());
}

static const OpFamily kFamily("embedding", [] {
  OpList all = {&places_op(), &index_put_op()};
  for (Kind kind : {Kind::kTable, Kind::kTensor})
    for (const Op* op : {&forward_op(kind), &backward_op(kind)})
      all.push_back(op);
  return all;
});

}  // namespace dtensor
