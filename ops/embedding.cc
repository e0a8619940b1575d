// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include <algorithm>
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/exact.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

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

// Which rows the ids name: those of a table [v, h] (embedding()), those of bags
// (embedding_bag()), or the slices of any tensor along a dimension
// (index_select() and index_add()).
enum class Kind : uint8_t { kTable, kBag, kTensor };

const Op& forward_op(Kind);
const Op& backward_op(Kind, bool exact = false);

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

// embedding(): table "vh", ids "..." -> "...h". In embedding_bag(), the rows of
// a bag are added. In index_select(), v may be any dimension of the table, and
// the ids' dimensions take its place.
class Embedding : public Op {
 public:
  explicit Embedding(Kind kind)
      : Op(kind == Kind::kTable ? "embedding"
           : kind == Kind::kBag ? "embedding_bag"
                                : "index_select",
           {.work = {.flops_per_point = 0, .looked_up = 1},
            // One rank has the row of an id, but several have rows of a bag.
            .sums = kind == Kind::kBag ? OpFacts::Sums::kInOrder
                                       : OpFacts::Sums::kExact}),
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
    return BoundRule(Rule(kind_ == Kind::kBag
                              ? "vh,bk->bh | linear 0"
                              : fmt::format("{0}v{1},...->{0}...{1} | linear 0",
                                            f.before, f.after)),
                     shapes, name());
  }
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_ids(name(), in[1]);
    DT_CHECK(kind_ != Kind::kBag || has_bags(in[0]), name(),
             "adds rows of f32 and f64, not of {}", dtensor::name(in[0]));
    return {in[0]};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    if (kind_ == Kind::kBag)
      return {{{{{7, 3}}, {{5, 4}, SampleInput::Values::kIndex, 7}},
               EmbeddingArgs{false, 0},
               true},
              {{{{5, 4}}, {{3, 1}, SampleInput::Values::kIndex, 5}},
               EmbeddingArgs{false, 0},
               true}};
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
    const bool exact = c.out[0].dtype() == DType::kExact;
    const Tensor out =
        exact ? c.scratch(c.out[0].shape(), c.in[0].dtype()) : c.out[0];
    const bool bags = kind_ == Kind::kBag;
    if (!args.zeros_outside) check_range(c, ids);
    // Every id is in at most one range. A look-up in another range gives zeros,
    // so the results for all ranges are added.
    auto look_up = [&](Interval range, int64_t row, const Tensor& to) {
      c.run(kernels::Embedding{.table = table,
                               .ids_type = ids.dtype(),
                               .outer = matrices.outer,
                               .count = bags ? ids.shape()[0] : ids.numel(),
                               .bag = bags ? ids.shape()[1] : 1,
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
    if (exact) c.out[0] = converted(out, DType::kExact);
  }

  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor& table = c.inputs[0];
    const int64_t dim = c.attrs.as<EmbeddingArgs>().dim;
    const DistTensor &dy = c.cotangents[0], &ids = c.inputs[1];
    const EmbeddingBackwardArgs args{table.size(static_cast<int>(dim)), false,
                                     dim};
    const Op& back = backward_op(kind_, has_exact_sums(table.dtype()));
    if (kind_ == Kind::kBag)
      return {apply1(back,
                     {expand(unsqueeze(dy, 1),
                             {ids.size(0), ids.size(1), dy.size(1)}),
                      ids},
                     args),
              {}};
    const Assignment a = turned(c, table.ndim(), dim, true);
    DistTensor d = apply1(back, {dy, ids}, args, &a);
    if (is_float(d.dtype()) && d.dtype() != table.dtype())
      d = cast(d, table.dtype());
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
  EmbeddingBackward(Kind kind, bool exact)
      : Op(kind == Kind::kTable ? "embedding_backward" : "index_add",
           {.work = {.flops_per_point = 0}}),
        kind_(kind),
        exact_(exact) {}

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
    return {exact_            ? DType::kExact
            : is_float(in[0]) ? kernels::stat_of(in[0])
                              : in[0]};
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
  bool exact_;
};

const Op& forward_op(Kind kind) {
  static const Embedding ops[] = {
      Embedding(Kind::kTable), Embedding(Kind::kBag), Embedding(Kind::kTensor)};
  return ops[static_cast<size_t>(kind)];
}

const Op& backward_op(Kind kind, bool exact) {
  static const EmbeddingBackward ops[] = {{Kind::kTable, false},
                                          {Kind::kTensor, false},
                                          {Kind::kTable, true},
                                          {Kind::kTensor, true}};
  return ops[2 * exact + (kind == Kind::kTensor)];
}

}  // namespace

DistTensor from_front(const DistTensor& index, int64_t n) {
  const DistTensor i = cast(index, DType::kI64);
  return where(logical_and(lt(i, 0), ge(i, -n)), i + n, i);
}

void check_index_type(std::string_view op, const DistTensor& index) {
  const DType t = index.dtype();
  DT_CHECK(t == DType::kI32 || t == DType::kI64, op,
           "the indices are {}, but must be i32 or i64; write cast(indices, "
           "DType::kI64)",
           name(t));
}

void check_vector(std::string_view op, const DistTensor& index) {
  DT_CHECK(index.ndim() <= 1, op,
           "the indices {} are not a vector; flatten() them",
           index.spec()->to_string());
}

DistTensor take_slices(const DistTensor& x, int dim, const DistTensor& index,
                       bool checked) {
  if (x.dtype() == DType::kBool)  // a partial sum of bools cannot be reduced
    return cast(take_slices(cast(x, DType::kI32), dim, index, checked),
                DType::kBool);
  return apply1(forward_op(Kind::kTensor), {x, index},
                EmbeddingArgs{!checked, dim});
}

DistTensor put_slices(const DistTensor& dy, int dim, const DistTensor& index,
                      int64_t n, bool checked) {
  return cast(apply1(backward_op(Kind::kTensor, has_exact_sums(dy.dtype())),
                     {dy, index}, EmbeddingBackwardArgs{n, checked, dim}),
              dy.dtype());
}

DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& options) {
  return apply1(forward_op(Kind::kTable), {table, ids},
                EmbeddingArgs{options.zeros_outside, 0});
}

DistTensor bag_sums(const DistTensor& table, const DistTensor& ids) {
  return apply1(forward_op(Kind::kBag), {table, ids}, EmbeddingArgs{false, 0});
}

const Spec* rows_spec(const DistTensor& table, int64_t n) {
  const Spec* all = table.grad_spec();
  Shape shape = all->shape();
  Layout layout = all->layout();
  shape[0] = n;
  layout.dims[0] = Dim(n);
  return Spec::get(all->mesh(), shape, layout, all->dtype());
}

DistTensor index_select(const DistTensor& x, int dim, const DistTensor& index) {
  check_defined("index_select", {x, index});
  check_vector("index_select", index);
  if (x.ndim() == 0)
    return reshape(index_select(reshape(x, {1}), dim, index), {});
  return take_slices(x, normalize_dim(dim, x.ndim(), "index_select"),
                     reshape(index, {-1}), true);
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
  return x + put_slices(scaled, d, reshape(index, {-1}), x.size(d), true);
}

static const OpFamily kFamily("embedding", [] {
  OpList all{&forward_op(Kind::kBag)};
  for (Kind kind : {Kind::kTable, Kind::kTensor})
    for (const Op* op : {&forward_op(kind), &backward_op(kind)})
      all.push_back(op);
  return all;
});

}  // namespace dtensor
