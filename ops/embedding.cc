// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/embedding.h"

#include <algorithm>
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

void check_ids(std::string_view op, DType ids) {
  DT_CHECK(ids == DType::kI32 || ids == DType::kI64, op,
           "the ids are {}, but must be i32 or i64; write cast(ids, "
           "DType::kI64)",
           name(ids));
}

struct EmbeddingArgs {
  static constexpr Fields kFields = {"zeros_outside", value("dim")};
  bool zeros_outside;
  int64_t dim;  // for the text of an error
};

struct EmbeddingBackwardArgs {
  static constexpr Fields kFields = {"vocabulary", "checked", value("dim")};
  int64_t vocabulary;  // rows of the table
  bool checked;        // an id that names no row is an Error
  int64_t dim;
};

// Whose rows: those of a table [v, h], or of any tensor [v, ...], whose
// indices index_select() and index_add() name.
enum class Kind : bool { kTable, kTensor };

const Op& forward_op(Kind);
const Op& backward_op(Kind);

// The factors of a row with `ndim` dimensions.
std::string row_factors(int ndim) {
  return std::string("hijklmno").substr(0, static_cast<size_t>(ndim));
}

// Moves factor v, the first one of the forward rule, behind the `ndim` factors
// of a row, as in the backward rule, or vice versa.
Assignment turned(const GradientCall& c, int ndim, bool forward) {
  Assignment a = inherited(c);
  const auto first = a.dims.begin(), end = first + ndim + 1;
  std::rotate(first, forward ? first + 1 : end - 1, end);
  return a;
}

// x with `keep` leading dimensions, and the others as one.
Tensor flat_rows(const Tensor& x, int keep) {
  Shape shape;
  int64_t n = 1;
  for (int d = 0; d < x.ndim(); ++d)
    if (d < keep)
      shape.push_back(x.shape()[d]);
    else
      n *= x.shape()[d];
  shape.push_back(n);
  return x.reshape(shape);
}

// table "vh", ids "..." -> "...h"
class Embedding : public Op {
 public:
  explicit Embedding(Kind kind)
      : Op(kind == Kind::kTable ? "embedding" : "index_select",
           {.work = {.flops_per_point = 0, .looked_up = 1}}),
        kind_(kind) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    const int dims = shapes[0].size();
    DT_CHECK(kind_ == Kind::kTensor ? dims > 0 : dims == 2, name(),
             "the table has shape {}; write one with {} dimensions",
             dtensor::to_string(shapes[0]),
             kind_ == Kind::kTensor ? "some" : "two");
    const std::string row = row_factors(dims - 1);
    return BoundRule(Rule("v" + row + ",...->..." + row + " | linear 0"),
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
      list.push_back({{{{5, 3, 2}}, {{4}, SampleInput::Values::kIndex, 5}},
                      EmbeddingArgs{false, 0},
                      true});
    return list;
  }

  void compute(Compute& c) const override {
    const DType t = c.in[0].dtype();
    const Rows table(flat_rows(c.in[0], 1));
    const Tensor ids = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
    if (!c.attrs.as<EmbeddingArgs>().zeros_outside) check_range(c, ids);
    // Every id is in at most one range; the lookups in others give zeros.
    auto look_up = [&](Interval range, int64_t row, const Tensor& to) {
      kernels::Matrix from = table;
      from.data = static_cast<const char*>(table.data()) +
                  row * table.stride * size_of(t);
      c.run(kernels::Embedding{.table = from,
                               .ids_type = ids.dtype(),
                               .count = ids.numel(),
                               .ids = ids.data(),
                               .lo = range.lo,
                               .hi = range.hi,
                               .out = to.mutable_data()});
    };
    const IntervalList ranges = c.ranges_of('v');
    look_up(ranges.empty() ? Interval{} : ranges[0], 0, out);
    int64_t row = ranges.empty() ? 0 : ranges[0].size();
    for (size_t i = 1; i < ranges.size(); row += ranges[i++].size()) {
      Tensor more = c.scratch(out.shape(), t);
      look_up(ranges[i], row, more);
      row_binary(c, fn::index_of<fn::Add>, out, more, out);
    }
  }

  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor& table = c.inputs[0];
    const Assignment a = turned(c, table.ndim() - 1, true);
    DistTensor d = apply1(backward_op(kind_), {c.cotangents[0], c.inputs[1]},
                          EmbeddingBackwardArgs{table.size(0), false, 0}, &a);
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

// dy "...h", ids "..." -> the table's gradient "vh"
class EmbeddingBackward : public Op {
 public:
  explicit EmbeddingBackward(Kind kind)
      : Op(kind == Kind::kTable ? "embedding_backward" : "index_add",
           {.work = {.flops_per_point = 0}}),
        kind_(kind) {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    const std::string row = row_factors(shapes[0].size() - shapes[1].size());
    return BoundRule(Rule("..." + row + ",...->v" + row + " | linear 0"),
                     shapes, name(),
                     {{'v', attrs.as<EmbeddingBackwardArgs>().vocabulary}});
  }
  // It sums many rows, so it is f32 for half types.
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
      list.push_back({{{{4, 3, 2}}, {{4}, SampleInput::Values::kIndex, 5}},
                      EmbeddingBackwardArgs{5, true, 0},
                      true});
    return list;
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<EmbeddingBackwardArgs>();
    const Rows dy(flat_rows(c.in[0], c.in[1].ndim()));
    const Tensor ids = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
    if (args.checked)
      check_ids_in(c.context, c.op.name(), ids, *c.decision.in[1],
                   args.vocabulary, {}, no_index(args.vocabulary, args.dim));
    int64_t row = 0;
    for (const Interval& range : c.ranges_of('v')) {
      const Tensor to = out.slice(0, row, row + range.size());
      c.run(kernels::EmbeddingBackward{.dy = dy,
                                       .ids_type = ids.dtype(),
                                       .ids = ids.data(),
                                       .lo = range.lo,
                                       .hi = range.hi,
                                       .dtable_type = out.dtype(),
                                       .dtable = to.mutable_data()});
      row += range.size();
    }
  }

  // The operator is linear in dy, so its gradient is the look-up.
  InputGradients gradient(const GradientCall& c) const override {
    const DistTensor &dy = c.inputs[0], &ids = c.inputs[1];
    const Assignment a = turned(c, dy.ndim() - ids.ndim(), false);
    // The forward pass checked the ids.
    DistTensor d = apply1(forward_op(kind_), {c.cotangents[0], ids},
                          EmbeddingArgs{true, 0}, &a);
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

// x with dimension `dim` first, and back.
DistTensor to_first(const DistTensor& x, int dim) {
  return dim == 0 ? x : transpose(x, 0, dim);
}

void check_vector(std::string_view op, const DistTensor& index) {
  DT_CHECK(index.ndim() <= 1, op, "the indices {} are not a vector",
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
  const DistTensor y =
      apply1(forward_op(Kind::kTensor), {to_first(x, d), reshape(index, {-1})},
             EmbeddingArgs{false, d});
  return to_first(y, d);
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
           "cannot add {} at {} indices of dimension {} of {}; write a tensor "
           "of the same type and of shape {}",
           src.spec()->to_string(), numel(index.shape()), d,
           x.spec()->to_string(), dtensor::to_string(want));
  const DistTensor scaled =
      alpha.value == 1 ? src : cast(mul(src, alpha), x.dtype());
  const DistTensor sum = apply1(backward_op(Kind::kTensor),
                                {to_first(scaled, d), reshape(index, {-1})},
                                EmbeddingBackwardArgs{x.size(d), true, d});
  return x + to_first(cast(sum, x.dtype()), d);
}

static const OpFamily kFamily("embedding", [] {
  OpList all;
  for (Kind kind : {Kind::kTable, Kind::kTensor})
    for (const Op* op : {&forward_op(kind), &backward_op(kind)})
      all.push_back(op);
  return all;
});

}  // namespace dtensor
