#include "tests/ops/kernels_testing.h"

namespace dtensor::kernels {

const Kernels& under_test() { return cpu_kernels(); }

}  // namespace dtensor::kernels
