// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/kernels/kernels.h"

#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

class NoKernels final : public Kernels {
 public:
  bool has(const KernelName&) const override { return true; }

 private:
  void start(const KernelName&, Stream, const void*) const override {}
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
  fail("kernels",
       "{} is of kind kCuda, but has no kernels; return them from its "
       "own_kernels()",
       device.name());
}

}  // namespace dtensor
