// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/by_index.h"

#include "dtensor/ops/create.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/embedding_op.h"
#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/searching.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// The index of a function with one index for each slice of x along `dim`.
struct Slices {
  Slices(std::string_view op, const DistTensor& x, int d,
         const DistTensor& indices)
      : dim(normalize_dim(d, x.ndim(), op)) {
    check_vector(op, indices);
    check_index_type(op, indices);
    index = reshape(indices, {-1});
  }
  // Throws Error unless src has one slice for each index.
  void check_slices(std::string_view op, const DistTensor& x,
                    const DistTensor& src) const {
    Shape want = x.shape();
    want[dim] = index.size(0);
    DT_CHECK(src.shape() == want && src.dtype() == x.dtype(), op,
             "the slices {} do not fit {} at the indices {} of dimension {}; "
             "pass a tensor of {} and of shape {}",
             src.spec()->to_string(), x.spec()->to_string(),
             index.spec()->to_string(), dim, name(x.dtype()), to_string(want));
  }
  // The only index tensor of index() or index_put().
  std::vector<DistTensor> list() const {
    std::vector<DistTensor> list(static_cast<size_t>(dim));
    list.push_back(index);
    return list;
  }

  int dim;
  DistTensor index;
};

// index_fill(), where fill(x, mask) writes the value.
template <class F>
DistTensor filled(const DistTensor& scalar_or_x, int dim,
                  const DistTensor& indices, F&& fill) {
  constexpr const char* kOp = "index_fill";
  check_defined(kOp, {scalar_or_x, indices});
  const DistTensor x = atleast_1d(scalar_or_x);
  const Slices s(kOp, x, dim, indices);
  // Bools at the indices; index_put() also checks these.
  const DistTensor no = full({x.size(s.dim)}, 0, x.mesh(), {}, DType::kBool),
                   yes = full({}, 1, x.mesh(), {}, DType::kBool);
  const DistTensor mask = index_put(no, {s.index}, yes, true);
  return reshape(fill(x, along_dim(mask, x.ndim(), s.dim)),
                 scalar_or_x.shape());
}

}  // namespace

DistTensor take_along_dim(const DistTensor& x, const DistTensor& index,
                          int dim) {
  constexpr const char* kOp = "take_along_dim";
  check_defined(kOp, {x, index});
  check_index_type(kOp, index);
  DT_CHECK(x.ndim() == index.ndim(), kOp,
           "the indices {} and the tensor {} have different numbers of "
           "dimensions; pass indices with as many as the tensor",
           index.spec()->to_string(), x.spec()->to_string());
  const int d = normalize_dim(dim, x.ndim(), kOp);
  Shape of_x = x.shape(), of_index = index.shape();
  of_x[d] = of_index[d] = 1;
  Shape both = broadcast_shapes(of_x, of_index, kOp);
  const auto expanded = [&](const DistTensor& t) {
    both[d] = t.size(d);
    return expand(t, both);
  };
  return gather(expanded(x), d, from_front(expanded(index), x.size(d)));
}

DistTensor take_along_dim(const DistTensor& x, const DistTensor& index) {
  check_defined("take_along_dim", {x, index});
  check_index_type("take_along_dim", index);
  return gather(flatten(x), 0, from_front(flatten(index), numel(x.shape())));
}

DistTensor index_copy(const DistTensor& x, int dim, const DistTensor& index,
                      const DistTensor& src) {
  constexpr const char* kOp = "index_copy";
  check_defined(kOp, {x, index, src});
  if (x.ndim() == 0)
    return reshape(index_copy(atleast_1d(x), dim, index, atleast_1d(src)), {});
  const Slices s(kOp, x, dim, index);
  s.check_slices(kOp, x, src);
  return index_put(x, s.list(), src);
}

DistTensor index_fill(const DistTensor& x, int dim, const DistTensor& index,
                      const DistTensor& value) {
  return filled(x, dim, index,
                [&](const DistTensor& t, const DistTensor& mask) {
                  return masked_fill(t, mask, value);
                });
}
DistTensor index_fill(const DistTensor& x, int dim, const DistTensor& index,
                      Number value) {
  return filled(x, dim, index,
                [&](const DistTensor& t, const DistTensor& mask) {
                  return masked_fill(t, mask, value.value);
                });
}

DistTensor index_reduce(const DistTensor& x, int dim, const DistTensor& index,
                        const DistTensor& src, IndexReduction by,
                        bool include_self) {
  constexpr const char* kOp = "index_reduce";
  check_defined(kOp, {x, index, src});
  if (x.ndim() == 0)
    return reshape(index_reduce(atleast_1d(x), dim, index, atleast_1d(src), by,
                                include_self),
                   {});
  const Slices s(kOp, x, dim, index);
  s.check_slices(kOp, x, src);
  const DistTensor index_of_all =
      expand(along_dim(s.index, x.ndim(), s.dim), src.shape());
  return scatter_reduce(x, s.dim, index_of_all, src, by, include_self);
}

DistTensor take(const DistTensor& x, const DistTensor& indices) {
  check_defined("take", {x, indices});
  check_index_type("take", indices);
  return index(flatten(x), {indices});
}

DistTensor put(const DistTensor& x, const DistTensor& index,
               const DistTensor& src, bool accumulate) {
  check_defined("put", {x, index, src});
  check_index_type("put", index);
  DT_CHECK(numel(src.shape()) == numel(index.shape()), "put",
           "got {} elements for {} indices; pass one element for each index",
           numel(src.shape()), numel(index.shape()));
  return reshape(
      index_put(flatten(x), {flatten(index)}, flatten(src), accumulate),
      x.shape());
}

DistTensor isin(const DistTensor& x, const DistTensor& among, bool invert) {
  check_defined("isin", {x, among});
  const DType both = promote(x.dtype(), among.dtype());
  const DType t = both == DType::kBool ? DType::kI32 : both;
  const DistTensor e = cast(x, t);
  const DistTensor all = sort(flatten(cast(among, t)), 0).values;
  const DistTensor found =
      gt(sub(searchsorted(all, e, {.right = true}), searchsorted(all, e)), 0);
  return invert ? logical_not(found) : found;
}

}  // namespace dtensor
