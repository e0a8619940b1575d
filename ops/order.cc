// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/order.h"

#include "dtensor/ops/gather_op.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// A tensor with the rows along one of its dimensions. A scalar is a row of one
// element, as in torch.
struct Along {
  Along(std::string_view op, const DistTensor& x, int d) {
    check_defined(op, x);
    values_and_indices(op, x.dtype());
    scalar = x.ndim() == 0 && (d == 0 || d == -1);
    dim = scalar ? 0 : normalize_dim(d, x.ndim(), op);
    rows = scalar ? reshape(x, {1}) : to_last(x, dim);
    n = rows.size(-1);
    DT_CHECK(n > 0, op,
             "dimension {} of {} is empty; pass a tensor with elements", dim,
             x.spec()->to_string());
  }

  // One element per row, [..., 1], in the order of x's dimensions.
  DistTensor back(const DistTensor& y, bool keepdim) const {
    if (scalar) return reshape(y, {});
    const DistTensor kept = to_last(y, dim);
    return keepdim ? kept : squeeze(kept, dim);
  }

  DistTensor rows;  // [..., n]
  int64_t n = 0;
  int dim = 0;
  bool scalar = false;
};

TopK extreme(std::string_view op, const DistTensor& x, int dim, bool keepdim,
             bool largest) {
  check_defined(op, x);
  if (x.dtype() == DType::kBool) {
    const TopK y = extreme(op, cast(x, DType::kI32), dim, keepdim, largest);
    return {cast(y.values, DType::kBool), y.indices};
  }
  const Along a(op, x, dim);
  // topk() takes a NaN only as the largest element, so a minimum is the largest
  // element in reverse order.
  const auto ordered = [&](const DistTensor& t) {
    return largest ? t : is_float(t.dtype()) ? neg(t) : bitwise_not(t);
  };
  const TopK best = topk(ordered(a.rows), 1);
  return {a.back(ordered(best.values), keepdim), a.back(best.indices, keepdim)};
}

}  // namespace

TopK max(const DistTensor& x, int dim, bool keepdim) {
  return extreme("max", x, dim, keepdim, true);
}
TopK min(const DistTensor& x, int dim, bool keepdim) {
  return extreme("min", x, dim, keepdim, false);
}

}  // namespace dtensor
