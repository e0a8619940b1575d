// SPDX-License-Identifier: Apache-2.0
#include "tests/dtensor/device/recording_kernels.h"

#include "tests/dtensor/device/given_kernels.h"

namespace dtensor {
namespace {

class RecordingKernels final : public kernels::GivenKernels<RecordingKernels> {
 public:
  RecordingKernels(RecordingDevice& device, const Kernels& host)
      : device_(device), host_(host) {}

  bool has(const KernelName& name) const override { return host_.has(name); }
  template <class Kernel>
  void given(Stream s, Kernel kernel) const {
    kernels::HostArrays arrays;
    arrays.keep(kernel);
    device_.later(s, [this, kernel, arrays] { host_.run(Stream{}, kernel); });
  }

 private:
  RecordingDevice& device_;
  const Kernels& host_;
};

}  // namespace

std::unique_ptr<const Kernels> recording_kernels(RecordingDevice& device,
                                                 const Kernels& host) {
  return std::make_unique<RecordingKernels>(device, host);
}

}  // namespace dtensor
