// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
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

}  // namespace

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
  const DistTensor y = accumulate
                           ? to + put_slices(from, 0, places, flat[0], false)
                           : apply1(index_put_op(), {to, from, places});
  return reshape(y, x.shape());
}

static const OpFamily kFamily("index_put", [] {
  return OpList{&places_op(), &index_put_op()};
});

}  // namespace dtensor
