// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/parameter.h"

#include "dtensor/autograd.h"
#include "dtensor/placement/error.h"
#include "dtensor/redistribute.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {

void assign(const DistTensor& parameter, const DistTensor& value) {
  const Spec* to = parameter.spec();
  DT_CHECK(value.shape() == parameter.shape(), "assign",
           "the value {} does not have the shape of the parameter {}; pass a "
           "value of that shape",
           value.spec()->to_string(), to->to_string());
  const NoGrad no_grad;
  const DistTensor there = relayout(value, to->with(value.dtype()));
  DistTensor target = parameter;
  if (target.here()) target.assign(converted(there.local(), target.dtype()));
}

}  // namespace dtensor::nn
