// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/assign.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/view.h"
#include "dtensor/tensor_methods.h"

namespace dtensor {
namespace {

const DistTensor& self(const TensorMethods* x) {
  return static_cast<const DistTensor&>(*x);
}

}  // namespace

int TensorMethods::dim() const { return self(this).ndim(); }
int64_t TensorMethods::numel() const {
  return dtensor::numel(self(this).shape());
}
Placements TensorMethods::placements() const { return self(this).layout(); }
Device& TensorMethods::device() const { return self(this).local().device(); }

DistTensor TensorMethods::to(DType type) const {
  return cast(self(this), type);
}
DistTensor TensorMethods::clone() const { return dtensor::clone(self(this)); }
DistTensor TensorMethods::sum(const std::vector<int>& dims,
                              bool keepdim) const {
  return dtensor::sum(self(this), dims, keepdim);
}
DistTensor TensorMethods::mean(const std::vector<int>& dims,
                               bool keepdim) const {
  return dtensor::mean(self(this), dims, keepdim);
}
DistTensor TensorMethods::view(const Shape& shape) const {
  return dtensor::view(self(this), shape);
}
DistTensor TensorMethods::reshape(const Shape& shape) const {
  return dtensor::reshape(self(this), shape);
}
DistTensor TensorMethods::expand(const Shape& shape) const {
  return dtensor::expand(self(this), shape);
}
DistTensor TensorMethods::permute(const std::vector<int>& order) const {
  return dtensor::permute(self(this), order);
}
DistTensor TensorMethods::transpose(int a, int b) const {
  return dtensor::transpose(self(this), a, b);
}
const DistTensor& TensorMethods::contiguous() const { return self(this); }
DistTensor TensorMethods::T() const { return t(); }
DistTensor TensorMethods::t() const { return dtensor::transpose(self(this)); }

const DistTensor& TensorMethods::copy_(const DistTensor& value) const {
  const InPlace scope("copy_", self(this), &value);
  return scope.set(
      cast(dtensor::expand(value, self(this).shape()), self(this).dtype()));
}
const DistTensor& TensorMethods::fill_(double value) const {
  const InPlace scope("fill_", self(this), nullptr);
  return scope.set(full_like(self(this), value));
}
const DistTensor& TensorMethods::zero_() const { return fill_(0); }

}  // namespace dtensor
