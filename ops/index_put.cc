// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/functions/lists.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/id_range.h"
#include "dtensor/ops/index_tensors.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/select.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/rows.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

struct PlacesArgs {
  static constexpr Fields kFields = {"sizes", "unique", value("dims"),
                                     value("put")};
  Shape sizes;  // of the dimensions that the indices select from
  bool unique;
  // For the text of an error: the numbers of these dimensions, of which the
  // first takes the lowest 4 bits, and whether index_put() asks.
  int64_t dims;
  bool put;
};

// One vector of indices "m" for each of some dimensions of a tensor -> the
// places "m" of the elements in these dimensions together, in row-major order.
// With `unique`, only the last of equal places remains, and the others become
// -1. The indices count from the front.
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
    return {{{index(7)}, PlacesArgs{{7}, false, 0, true}, true},
            {{index(3)}, PlacesArgs{{3}, true, 0, true}, true},
            {{index(2), index(3)}, PlacesArgs{{2, 3}, true, 0x10, true}, true}};
  }

  void compute(Compute& c) const override {
    const auto& args = c.attrs.as<PlacesArgs>();
    const Tensor& out = c.out[0];
    for (int d = 0; d < args.sizes.size(); ++d) {
      const int64_t n = args.sizes[d];
      const auto i = static_cast<size_t>(d);
      const Tensor index = c.in[i].to_contiguous();
      check_ids_in(c.context, args.put ? "index_put" : "index", index,
                   *c.decision.in[i], n, {},
                   [n, d = args.dims >> 4 * d & 15](int64_t id) {
                     return fmt::format(
                         "index {} is not in [{}, {}), the indices of "
                         "dimension {} of the tensor; pass indices in that "
                         "range",
                         id, -n, n, d);
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
    const int64_t size = out.shape()[0];
    int64_t at = 0;
    for (const Interval& range : c.ranges_of('n')) {
      c.run(kernels::WriteRows{.type = out.dtype(),
                               .count = places.numel(),
                               .n = size > 0 ? out.numel() / size : 0,
                               .rows = values.data(),
                               .ids = places.data(),
                               .lo = range.lo,
                               .hi = range.hi,
                               .at = at,
                               .size = size,
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
    if (g.needed[1]) dvalues = take_slices(dy, 0, places, false);
    return {dx, dvalues, {}};
  }
};

// A tensor whose dimensions with an index are merged into one, and the places
// of the indices in that dimension.
struct Merged {
  Merged(const DistTensor& tensor, TensorList indices, bool put, bool unique) {
    const std::string_view op = put ? "index_put" : "index";
    PlacesArgs args{{}, unique, 0, put};
    std::vector<int> dims;
    for (int d = 0; d < tensor.ndim(); ++d) {
      const auto i = static_cast<size_t>(d);
      const bool has = i < indices.size() && indices[i].defined();
      if (has) check_type(op, indices[i], d);
      (has ? dims : order).push_back(d);
    }
    // As in torch, neighbours keep their position, and others come first.
    const auto count = static_cast<int>(dims.size());
    at = dims.back() - dims[0] + 1 == count ? dims[0] : 0;
    // To merge the others with a split dimension moves nothing if it is first.
    std::stable_partition(dims.begin(), dims.end(), [&](int d) {
      return !tensor.layout().dims[static_cast<size_t>(d)].whole();
    });
    order.insert(order.begin() + at, dims.begin(), dims.end());
    std::vector<DistTensor> vectors;
    for (int d : dims) {
      vectors.push_back(
          from_front(indices[static_cast<size_t>(d)], tensor.size(d)));
      args.dims |= int64_t{d} << 4 * args.sizes.size();
      args.sizes.push_back(tensor.size(d));
    }
    if (count > 1) vectors = broadcast_tensors(vectors);
    index_shape = vectors[0].shape();
    for (DistTensor& v : vectors) v = reshape(v, {-1});
    places = apply1(op_of<Places>(), vectors, args);
    x = permute(tensor, order);
    permuted = x.shape();
    x = reshape(x, with(permuted, count, {numel(args.sizes)}));
    selected = with(x.shape(), 1, index_shape);
  }
  // Undoes the merging, for a tensor of x's shape.
  DistTensor back(const DistTensor& y) const {
    std::vector<int> inverse(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
    return permute(reshape(y, permuted), inverse);
  }
  // The shape with `sizes` in the place of its `count` sizes from `at` on.
  Shape with(const Shape& shape, int count, const Shape& sizes) const {
    Shape s;
    for (int d = 0; d < at; ++d) s.push_back(shape[d]);
    for (int64_t size : sizes) s.push_back(size);
    for (int d = at + count; d < shape.size(); ++d) s.push_back(shape[d]);
    return s;
  }

  DistTensor x, places;  // `places` is a vector
  int at;                // the merged dimension
  Shape index_shape;     // to which the index tensors broadcast
  Shape selected;        // of the elements that they select
  std::vector<int> order;
  Shape permuted;

 private:
  static void check_type(std::string_view op, const DistTensor& index, int d) {
    const DType t = index.dtype();
    DT_CHECK(t == DType::kI32 || t == DType::kI64, op,
             "the indices {} of dimension {} are {}, but must be i32 or i64; "
             "write cast(indices, DType::kI64)",
             index.spec()->to_string(), d, name(t));
  }
};

bool is_mask(const DistTensor& index) {
  return index.defined() && index.dtype() == DType::kBool;
}

void check_mask(std::string_view op, const DistTensor& x, size_t first,
                const DistTensor& mask) {
  const auto from = static_cast<int>(first);
  bool fits = mask.ndim() >= 1 && from + mask.ndim() <= x.ndim();
  for (int d = 0; fits && d < mask.ndim(); ++d)
    fits = mask.size(d) == x.size(from + d);
  DT_CHECK(
      fits, op,
      "the mask {} does not have the sizes of the dimensions of {} from {} "
      "on; pass one that has",
      mask.spec()->to_string(), x.spec()->to_string(), from);
}

// Replaces each mask by the indices of its true elements: one vector for each
// of its dimensions. Every rank waits for their number.
std::vector<DistTensor> without_masks(std::string_view op, const DistTensor& x,
                                      TensorList indices) {
  std::vector<DistTensor> list;
  for (const DistTensor& index : indices) {
    if (!is_mask(index)) {
      list.push_back(index);
      continue;
    }
    check_mask(op, x, list.size(), index);
    const DistTensor flat = cast(flatten(index), DType::kI32);
    // Equal elements keep their order.
    DistTensor places =
        narrow(argsort(flat, 0, true), 0, 0, sum(flat).item<int64_t>());
    const size_t first = list.size();
    for (int d = index.ndim() - 1; d >= 0; --d) {
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(first),
                  d == 0 ? places : remainder(places, index.size(d)));
      if (d > 0) places = floor_divide(places, index.size(d));
    }
  }
  return list;
}

bool fits(const DistTensor& values, const Shape& selected) {
  const int more = selected.size() - values.ndim();
  bool fits = more >= 0;
  for (int d = 0; fits && d < values.ndim(); ++d)
    fits = values.size(d) == 1 || values.size(d) == selected[d + more];
  return fits;
}

// The shape of the elements that index_put() selects, if its only index is this
// mask and has one true element.
Shape masked_shape(const DistTensor& x, const DistTensor& mask) {
  Shape shape = {1};
  for (int d = mask.ndim(); d < x.ndim(); ++d) shape.push_back(x.size(d));
  return shape;
}

// index_put() with such a mask, and values that fit masked_shape().
DistTensor put_where(const DistTensor& x, const DistTensor& mask,
                     const DistTensor& values, bool accumulate) {
  const int rest = x.ndim() - mask.ndim();
  Shape sizes = mask.shape();
  for (int d = 0; d < rest; ++d) sizes.push_back(1);
  const DistTensor v = values.ndim() > rest ? squeeze(values, 0) : values;
  return where(reshape(mask, sizes), accumulate ? x + v : v, x);
}

}  // namespace

void check_values(const DistTensor& x, const DistTensor& values,
                  const Shape& selected) {
  DT_CHECK(fits(values, selected), "index_put",
           "the values {} do not fit the elements of {} that the indices "
           "select; pass values of shape {}, or of one that broadcasts to it",
           values.spec()->to_string(), x.spec()->to_string(),
           dtensor::to_string(selected));
}

DistTensor index_tensors(const DistTensor& x, TensorList indices) {
  const Merged m(x, without_masks("index", x, indices), false, false);
  return take_slices(m.x, m.at, reshape(m.places, m.index_shape), false);
}

DistTensor put_tensors(const DistTensor& x, TensorList indices,
                       const DistTensor& values, bool accumulate) {
  constexpr const char* kOp = "index_put";
  if (x.dtype() == DType::kBool)  // a sum of bools is their "or"
    return cast(put_tensors(cast(x, DType::kI32), indices,
                            cast(values, DType::kI32), accumulate),
                DType::kBool);
  if (indices.size() == 1 && is_mask(indices[0])) {
    check_mask(kOp, x, 0, indices[0]);
    if (fits(values, masked_shape(x, indices[0])))
      return put_where(x, indices[0], values, accumulate);
  }
  const Merged m(x, without_masks(kOp, x, indices), true, !accumulate);
  check_values(x, values, m.selected);
  const DistTensor from =
      reshape(expand(values, m.selected),
              m.with(m.selected, m.index_shape.size(), m.places.shape()));
  if (accumulate)
    return m.back(m.x +
                  put_slices(from, m.at, m.places, m.x.size(m.at), false));
  const auto first = [&](const DistTensor& t) {
    return movedim(t, {m.at}, {0});
  };
  return m.back(
      movedim(apply1(op_of<IndexPut>(), {first(m.x), first(from), m.places}),
              {0}, {m.at}));
}

static const OpFamily kFamily("index_put", [] {
  return OpList{&op_of<Places>(), &op_of<IndexPut>()};
});

}  // namespace dtensor
