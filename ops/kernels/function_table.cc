#include "dtensor/ops/kernels/function_table.h"

#include "dtensor/placement/error.h"

namespace dtensor::kernels {

const fn::Function& checked_unary(int index, int order) {
  if (index < 0 || index >= fn::kNumUnary)
    fail("unary", "no function {}", index);
  const fn::Function& f = fn::unary_function(index);
  if (order < 0 || order > 2)
    fail(f.name, "no derivative of order {}: there are 0, 1 and 2", order);
  return f;
}

const fn::Function& checked_binary(int index) {
  if (index < 0 || index >= fn::kNumBinary)
    fail("binary", "no function {}", index);
  return fn::binary_function(index);
}

void no_kernel(const fn::Function& f, int order, DType t) {
  fail(f.name, "no kernel of order {} for {}", order, name(t));
}

}  // namespace dtensor::kernels
