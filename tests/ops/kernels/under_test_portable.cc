// The text that CUDA's kernels are made of, on the host, each row served by
// three threads.
#include "dtensor/device/portable/host_executor.h"
#include "dtensor/ops/kernels/portable/portable_kernels.h"
#include "tests/ops/kernels/testing.h"

namespace dtensor::kernels {

const Kernels& under_test() {
  portable::Lanes::count() = 3;
  return portable_kernels();
}

}  // namespace dtensor::kernels
