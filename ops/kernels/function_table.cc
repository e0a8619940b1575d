// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/function_table.h"

#include "dtensor/placement/error.h"

namespace dtensor::kernels {

const fn::Function& checked_unary(int index, int order) {
  if (index < 0 || index >= fn::kNumUnary)
    fail("unary",
         "function {} does not exist, which is an error in dtensor; report it",
         index);
  const fn::Function& f = fn::unary_function(index);
  if (order < 0 || order > fn::kMaxOrder)
    fail(f.name, "order is {}; pass 0 to {}", order, fn::kMaxOrder);
  return f;
}

const fn::Function& checked_binary(int index) {
  if (index < 0 || index >= fn::kNumBinary)
    fail("binary",
         "function {} does not exist, which is an error in dtensor; report it",
         index);
  return fn::binary_function(index);
}

void no_kernel(const fn::Function& f, int order, DType t) {
  fail(f.name,
       "does not compute derivative {} (0 is the function itself) for {}; cast "
       "to another type",
       order, name(t));
}

}  // namespace dtensor::kernels
