// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/assign.h"

#include "dtensor/autograd.h"
#include "dtensor/ops/op.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"

namespace dtensor {

void assign(const DistTensor& x, const DistTensor& value) {
  const Spec* to = x.spec();
  DT_CHECK(value.shape() == x.shape(), "assign",
           "the value {} does not have the shape of the tensor {}; pass a "
           "value of that shape",
           value.spec()->to_string(), to->to_string());
  const NoGrad no_grad;
  const DistTensor there = relayout(value, to->with(value.dtype()));
  DistTensor target = x;
  if (target.here()) target.assign(converted(there.local(), target.dtype()));
}

namespace {

// Bools become integers, and these floats, but not the other way.
int kind(DType t) { return t == DType::kBool ? 0 : is_float(t) ? 2 : 1; }

}  // namespace

InPlace::InPlace(std::string_view op, const DistTensor& x, const DistTensor* y)
    : op_(op), x_(x) {
  check_defined(op, x);
  if (y) check_defined(op, *y);
  const DistTensor& one = y && y->requires_grad() ? *y : x;
  DT_CHECK(!recording_ || !one.requires_grad(), op,
           "{} requires a gradient, and a change in place is not recorded; "
           "make a new tensor, as in x = x + y, or open a NoGrad scope",
           one.spec()->to_string());
}

const DistTensor& InPlace::set(const DistTensor& value) const {
  DT_CHECK(
      value.shape() == x_.shape() && kind(value.dtype()) <= kind(x_.dtype()),
      op_,
      "the result {} cannot be put into {}; make a new tensor, as in x = "
      "x + y",
      value.spec()->to_string(), x_.spec()->to_string());
  assign(x_, value);
  return x_;
}

#define DT_IN_PLACE(op, name)                                               \
  const DistTensor& operator op(const DistTensor& x, const DistTensor& y) { \
    const InPlace scope(#op, x, &y);                                        \
    return scope.set(name(x, y));                                           \
  }                                                                         \
  const DistTensor& operator op(const DistTensor& x, Number y) {            \
    const InPlace scope(#op, x, nullptr);                                   \
    return scope.set(name(x, y));                                           \
  }
DT_IN_PLACE(+=, add)
DT_IN_PLACE(-=, sub)
DT_IN_PLACE(*=, mul)
DT_IN_PLACE(/=, div)
#undef DT_IN_PLACE

}  // namespace dtensor
