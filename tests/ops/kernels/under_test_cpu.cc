#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {

const Kernels& under_test() { return cpu_kernels(); }

}  // namespace dtensor::kernels
