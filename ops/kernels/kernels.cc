#include "dtensor/ops/kernels/kernels.h"

#include "dtensor/placement/error.h"

namespace dtensor {

const Kernels& kernels_of(const Device& device) {
  if (const KernelTable* own = device.own_kernels())
    return static_cast<const Kernels&>(*own);
  switch (device.kind()) {
    case Device::Kind::kCpu:
      return cpu_kernels();
    case Device::Kind::kNone:
      return no_kernels();
    case Device::Kind::kCuda:
      break;
  }
  fail("kernels", "this build has no kernels for CUDA; run on the CPU");
}

}  // namespace dtensor
