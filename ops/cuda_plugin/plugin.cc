// SPDX-License-Identifier: Apache-2.0
// The library's entry point; see dtensor/device/cuda_plugin.h.
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtensor/comm/nccl/link.h"
#include "dtensor/device/cuda_plugin.h"
#include "dtensor/ops/cuda_plugin/cuda_device.h"
#include "dtensor/ops/cuda_plugin/streams.h"
#include "dtensor/ops/kernels/cuda/cuda_kernels.h"
#include "dtensor/version.h"

namespace dtensor {
namespace {

// Devices are made on demand, because a device that is only counted must not
// cost memory. The devices of a program get access to each other's memory,
// because ranks that are threads read their peers' memory, and so does NCCL
// among the GPUs of one process.
Device& device(int index) {
  static std::mutex mutex;
  static auto* const devices = new std::vector<std::unique_ptr<Device>>;
  std::lock_guard lock(mutex);
  const auto i = static_cast<size_t>(index);
  if (devices->size() <= i) devices->resize(i + 1);
  if (!(*devices)[i]) {
    auto made = cuda::make_device(index, cuda_kernels());
    for (const auto& other : *devices)
      if (other) cuda::give_access(*made, *other);
    (*devices)[i] = std::move(made);
  }
  return *(*devices)[i];
}

CudaPlugin describe() {
  static const std::string version(dtensor::version());
  static std::string why_none;
  const int devices = cuda::count(why_none);
  return {version.c_str(),
          devices,
          why_none.c_str(),
          &device,
          &nccl_library,
          [](const CudaOptions& o) { kernels::cuda::options = o; },
          [] { return kernels::cuda::declined.counts(); }};
}

}  // namespace
}  // namespace dtensor

const dtensor::CudaPlugin* dtensor_cuda_plugin(const dtensor::CudaHost* host) {
  dtensor::cuda::set_host(host);
  static const dtensor::CudaPlugin plugin = dtensor::describe();
  return &plugin;
}
