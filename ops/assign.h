// SPDX-License-Identifier: Apache-2.0
// Changing a tensor in place. Handles of the tensor see the change, as do
// tensors that share its memory: that of detach(), and views of a part. A
// gradient that needs the old values throws Error.
//
// Whether x[0], slice() and view() share the memory of x depends on its layout.
// So do not change their results in place; write index_put_(x, {0}, y).
#pragma once
#include <string_view>

#include "dtensor/dist_tensor.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/scopes.h"

namespace dtensor {

// Sets x = value in place, converted to the layout and type of x. Autograd does
// not record it. A custom optimizer is
//   assign(w, w - g * lr);
// Increments the version of x. Throws Error if the shapes differ. Collective
// unless the layouts are the same.
void assign(const DistTensor& x, const DistTensor& value);

// x += y sets x = x + y in place, as torch does: x keeps its layout and type. A
// custom optimizer is
//   const NoGrad no_grad;
//   w -= g * lr;
// Throws Error if x or y requires a gradient outside of NoGrad, because the
// change is not recorded: write x = x + y there, which makes a new tensor. Also
// throws if x + y has another shape than x, or if its type is a float and x's
// is not (or an integer, and x's is bool). Collective over the mesh.
const DistTensor& operator+=(const DistTensor& x, const DistTensor& y);
const DistTensor& operator-=(const DistTensor& x, const DistTensor& y);
const DistTensor& operator*=(const DistTensor& x, const DistTensor& y);
const DistTensor& operator/=(const DistTensor& x, const DistTensor& y);
const DistTensor& operator+=(const DistTensor& x, Number y);
const DistTensor& operator-=(const DistTensor& x, Number y);
const DistTensor& operator*=(const DistTensor& x, Number y);
const DistTensor& operator/=(const DistTensor& x, Number y);

// x[0] is a tensor of its own, so that changing it might not change x.
#define DT_NOT_IN_PLACE(op) \
  template <class Y>        \
  void operator op(DistTensor&& x, const Y& y) = delete;
DT_NOT_IN_PLACE(+=)  // write index_put_(x, {0}, y, true)
DT_NOT_IN_PLACE(-=)  // write index_put_(x, {0}, -y, true)
DT_NOT_IN_PLACE(*=)  // write index_put_(x, {0}, x[0] * y)
DT_NOT_IN_PLACE(/=)  // write index_put_(x, {0}, x[0] / y)
#undef DT_NOT_IN_PLACE

// A change of x by y in place, under the conditions of operator+=.
class InPlace {
 public:
  // Throws Error, headed by `op`, if x or y is undefined or needs a gradient. y
  // is null for a number.
  InPlace(std::string_view op, const DistTensor& x, const DistTensor* y);
  // Calls assign(x, value) and returns x, if the value has a type and a shape
  // that x can take.
  const DistTensor& set(const DistTensor& value) const;

 private:
  const std::string_view op_;
  const DistTensor& x_;
  const bool recording_ = grad_enabled();
  const NoGrad no_grad_;
};

}  // namespace dtensor
