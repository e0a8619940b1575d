// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/kernels.h"

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class NoKernels final : public Kernels {
 public:
#define DT_NOTHING(A) \
  void run(Stream, const kernels::A&) const override {}
  DT_KERNELS(DT_NOTHING)
#undef DT_NOTHING
};

}  // namespace

const Kernels& no_kernels() {
  static const NoKernels none;
  return none;
}

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
