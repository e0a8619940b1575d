#include "dtensor/ops/embedding.h"

#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/kernels/kernels.h"
#include "dtensor/ops/op_lists.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/rows.h"
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
  static constexpr Fields kFields = {"zeros_outside"};
  bool zeros_outside;
};

struct EmbeddingBackwardArgs {
  static constexpr Fields kFields = {"vocabulary"};
  int64_t vocabulary;  // rows of the table
};

const Op& forward_op();
const Op& backward_op();

// table "vh", ids "..." -> "...h"
class Embedding : public Op {
 public:
  Embedding() : Op("embedding") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs&) const override {
    return BoundRule(Rule("vh,...->...h | linear 0"), shapes, name());
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
                      EmbeddingArgs{false},
                      true});
    return list;
  }

  void compute(Compute& c) const override {
    const DType t = c.in[0].dtype();
    const Rows table(c.in[0]);
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

  std::vector<DistTensor> gradient(const GradientCall& c) const override {
    // The backward rule has the factors v and h in reverse order.
    Assignment a = inherited(c);
    std::swap(a.dims[0], a.dims[1]);
    const DistTensor& table = c.inputs[0];
    DistTensor d =
        apply1(backward_op(), std::vector{c.cotangents[0], c.inputs[1]},
               EmbeddingBackwardArgs{table.size(0)}, &a);
    if (d.dtype() != table.dtype()) d = cast(d, table.dtype());
    return {d, {}};
  }

 private:
  static void check_range(Compute& c, const Tensor& ids) {
    const int64_t rows = c.global_size('v');
    check_ids_in(c, ids, *c.decision.in[1], rows, {}, [=](int64_t id) {
      return fmt::format(
          "id {} is not in [0, {}), the rows of the table; for zeros write "
          "embedding(table, ids, {{.zeros_outside = true}})",
          id, rows);
    });
  }
};

// dy "...h", ids "..." -> the table's gradient "vh"
class EmbeddingBackward : public Op {
 public:
  EmbeddingBackward() : Op("embedding_backward") {}

  BoundRule bind(const std::vector<Shape>& shapes,
                 const Attrs& attrs) const override {
    return BoundRule(Rule("...h,...->vh | linear 0"), shapes, name(),
                     {{'v', attrs.as<EmbeddingBackwardArgs>().vocabulary}});
  }
  // It sums many rows, so it is f32 for half types.
  std::vector<DType> out_dtypes(std::span<const DType> in,
                                const Attrs&) const override {
    check_float(name(), in[0]);
    check_ids(name(), in[1]);
    return {kernels::stat_of(in[0])};
  }
  std::vector<Sample> samples() const override {
    std::vector<Sample> list;
    for (const auto& [v, h, ids] :
         std::vector<std::tuple<int64_t, int64_t, Shape>>{
             {7, 3, {5}}, {5, 3, {3, 4}}, {1, 1, {3}}, {3, 5, {}}}) {
      Shape dy = ids;
      dy.push_back(h);
      list.push_back({{{dy}, {ids, SampleInput::Values::kIndex, v}},
                      EmbeddingBackwardArgs{v},
                      true});
    }
    return list;
  }

  void compute(Compute& c) const override {
    const Rows dy(c.in[0]);
    const Tensor ids = c.in[1].to_contiguous();
    const Tensor& out = c.out[0];
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
  std::vector<DistTensor> gradient(const GradientCall& c) const override {
    Assignment a = inherited(c);
    std::swap(a.dims[0], a.dims[1]);
    // The forward pass checked the ids.
    DistTensor d =
        apply1(forward_op(), std::vector{c.cotangents[0], c.inputs[1]},
               EmbeddingArgs{true}, &a);
    if (d.dtype() != c.inputs[0].dtype()) d = cast(d, c.inputs[0].dtype());
    return {d, {}};
  }
};

const Op& forward_op() {
  static const Embedding op;
  return op;
}

const Op& backward_op() {
  static const EmbeddingBackward op;
  return op;
}

}  // namespace

DistTensor embedding(const DistTensor& table, const DistTensor& ids,
                     const EmbeddingOptions& options) {
  return apply1(forward_op(), std::vector{table, ids},
                EmbeddingArgs{options.zeros_outside});
}

OpList embedding_ops() { return {&forward_op(), &backward_op()}; }

}  // namespace dtensor
